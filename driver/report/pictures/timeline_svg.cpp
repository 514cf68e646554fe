#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "driver/core/mapped.h"
#include "driver/report/case_text.h"
#include "driver/report/html_document.h"
#include "driver/report/pictures/pictures.h"
#include "driver/report/pictures/svg.h"
#include "driver/report/pictures/time_axis.h"
#include "driver/report/text_format.h"

// A run as lanes of pools with the cases that they ran.

namespace cp_pool {
namespace {

// All lengths are in units; one is about a pixel.
constexpr double kTimelineWidth = 1000;
constexpr double kTimelineLeft = 4;
constexpr double kTimelineRight = 64;  // room for the last words
constexpr double kTimelineTop = 34;    // room for ticks, and the words of pauses below them
constexpr double kLaneHeight = 46;
constexpr double kPoolTop = 20;  // top of a pool in its lane, below its name
constexpr double kPoolHeight = 20;
constexpr double kCaseInset = 3;  // between a pool's edge and its cases
constexpr double kLeastBar = 2;
constexpr double kTimelineKey = 26;
constexpr std::size_t kWordLetters = 200;

struct TimelinePool : PoolLife {
  double end;  // when it was retired, or the end of the run

  [[nodiscard]] bool ended_badly() const { return pool->retired && !is_expected(pool->retired->reason); }
};

std::vector<TimelinePool> pools_of(const RunReport& run) {
  return mapped(run.pool_lives(), [&](PoolLife life) {
    const double told = life.ready ? *life.ready - life.pool->ready->spawn_to_ready_ms : life.spawned;
    life.spawned = std::min(life.spawned, std::max(0.0, told));
    const double end = life.retired.value_or(run.last_ms);
    return TimelinePool{std::move(life), end};
  });
}

// Returns the number of cases that no pool of the timeline ran.
std::size_t cases_without_pool(const RunReport& run, const std::vector<TimelinePool>& pools) {
  std::size_t cases = 0;
  for (const ReportedCase& c : run.cases) {
    cases += static_cast<std::size_t>(std::ranges::count_if(c.tries, [&](const ReportedTry& each) {
      return each.end.at_ms && (each.end.pool || &each == &c.tries.back());
    }));
  }
  for (const TimelinePool& pool : pools) cases -= pool.tries.size();
  return cases;
}

// Pools of a lane that are drawn as one, because they are too short to be seen.
using PoolGroup = std::vector<const TimelinePool*>;

// A bar of cases that are drawn as one.
struct TimelineBar : CaseGroup {
  double begin = 0;  // units of the axis
  double end = 0;

  void add(const CaseFinished& c, double from, double to) {
    begin = cases == 0 ? from : std::min(begin, from);
    end = cases == 0 ? to : std::max(end, to);
    CaseGroup::add(c);
  }

  // Returns "ID: pass, 12 ms", or "12 cases: 11 pass, 1 fail. ID: fail, 15 ms".
  [[nodiscard]] std::string hint() const {
    constexpr std::size_t kHintLetters = 160;
    const std::string one = fmt::format("{}: {}, {}", cut_middle(case_name(*shown), kHintLetters), outcome_word(*shown),
                                        format_duration(shown->duration_ms));
    return cases == 1 ? one : fmt::format("{} cases: {}. {}", cases, outcome_counts_text(counts), one);
  }
};

// Returns the bars of cases that ran one after another, from when each was sent until all of it was known, the
// diagnosis included. A case joins the bar before it as long as the bar is not wider than kLeastBar units.
std::vector<TimelineBar> timeline_bars(const PoolGroup& group, const TimeAxis& axis) {
  std::vector<TimelineBar> bars;
  for (const TimelinePool* const pool : group) {
    for (const ReportedTry* const each : pool->tries) {
      const double unsent = *each->end.at_ms - each->end.duration_ms;
      const double to = axis.x(*each->end.at_ms);
      if (bars.empty() || to - bars.back().begin > kLeastBar) bars.emplace_back();
      bars.back().add(each->end, axis.x(each->sent.empty() ? unsent : each->sent.back().at_ms), to);
    }
  }
  return bars;
}

// Draws the bar from `top` on, `height` units high, shifted to the right by `left`. Passes are at the bottom, other
// outcomes above them, and bad ones stand out on top under the texture `hatch`. Each part is high enough to be seen. A
// bar with neither passes nor failures is half as high. `hint` is its tooltip; an empty one is left out.
void append_bar(pugi::xml_node parent, const TimelineBar& bar, double left, double top, double height,
                const std::string& hatch, const std::string& hint) {
  constexpr double kLeastPart = 4;
  constexpr double kBarStandsOut = 5;
  constexpr auto kOther = static_cast<std::size_t>(Urgency::other);
  constexpr auto kBad = static_cast<std::size_t>(Urgency::bad);
  pugi::xml_node group = parent.append_child("g");
  if (!hint.empty()) append_hint(group, hint);
  const auto kinds = std::ranges::count_if(bar.by_urgency, [](std::size_t cases) { return cases > 0; });
  const double shared = height - kLeastPart * static_cast<double>(kinds);
  double bottom = top + height;
  for (std::size_t kind = 0; kind < kOutcomeFills.size(); ++kind) {
    if (bar.by_urgency.at(kind) == 0) continue;
    double part = height;
    if (kinds > 1) {
      part = kLeastPart + shared * static_cast<double>(bar.by_urgency.at(kind)) / static_cast<double>(bar.cases);
    } else if (kind == kOther) {
      part = height / 2;
    }
    const double drawn = kind == kBad ? part + kBarStandsOut : part;
    const SvgBox box{
        .x = left + bar.begin, .y = bottom - drawn, .width = std::max(bar.end - bar.begin, 1.0), .height = drawn};
    append_rect(group, box, fmt::format("{} case", kOutcomeFills.at(kind)));
    if (kind == kBad) set(append_rect(group, box, ""), "fill", hatch);
    bottom -= part;
  }
}

// Returns the width of words. The page has larger letters in this picture, since it is wider than others.
double words_width(const std::string& words) {
  return label_width(words) * 13 / 11;
}

struct TimelineDrawing {
  const RunReport& run;
  std::vector<TimelinePool> pools;
  TimeAxis axis;
  std::size_t lanes = 0;
  pugi::xml_node svg = {};
  std::string hatch = {};    // texture of bad outcomes
  std::string stripes = {};  // texture of a pool that starts

  [[nodiscard]] double x(double ms) const { return kTimelineLeft + axis.x(ms); }
  [[nodiscard]] PoolGroup all_pools() const {
    return mapped(pools, [](const TimelinePool& pool) { return &pool; });
  }
  [[nodiscard]] double bottom() const { return kTimelineTop + kLaneHeight * static_cast<double>(lanes); }
};

// Returns the pools in lanes. The pools of a lane have one key and follow each other. Lanes are in the order of world
// size, key and beginning.
std::vector<PoolGroup> lanes_of(const TimelineDrawing& drawing) {
  PoolGroup order = drawing.all_pools();
  std::ranges::stable_sort(order, {}, [](const TimelinePool* p) {
    return std::tuple{p->pool->spawned->world_size, p->pool->id.key, p->spawned};
  });
  std::vector<PoolGroup> lanes;
  for (const TimelinePool* const pool : order) {
    const auto free = std::ranges::find_if(lanes, [&](const PoolGroup& lane) {
      return lane.back()->pool->id.key == pool->pool->id.key && lane.back()->end <= pool->spawned;
    });
    (free == lanes.end() ? lanes.emplace_back() : *free).push_back(pool);
  }
  return lanes;
}

std::string pool_words(const TimelinePool& pool) {
  std::string end = "still alive when the run ended";
  if (const auto& retired = pool.pool->retired) {
    const std::string detail = cut_middle(retired->detail, kWordLetters);
    end = fmt::format("{}{}{}", to_string(retired->reason), detail.empty() ? "" : ": ", detail);
  }
  return fmt::format("{}, {}, {}; {}", to_string(pool.pool->id),
                     pool.ready ? "ready after " + format_duration(*pool.ready - pool.spawned) : "never ready",
                     count_of(pool.tries.size(), "case"), end);
}

std::vector<PoolGroup> groups_of(const TimelineDrawing& drawing, const PoolGroup& lane) {
  std::vector<PoolGroup> groups;
  for (const TimelinePool* const pool : lane) {
    const double end = drawing.x(pool->end);
    if (groups.empty() || end - drawing.x(groups.back().front()->spawned) > kLeastBar) groups.emplace_back();
    groups.back().push_back(pool);
  }
  return groups;
}

// Returns the numbers of cases and of pools that were given up.
std::pair<std::size_t, std::size_t> cases_and_lost(const PoolGroup& pools) {
  std::pair<std::size_t, std::size_t> out;
  for (const TimelinePool* const pool : pools) {
    out.first += pool->tries.size();
    out.second += pool->ended_badly() ? 1 : 0;
  }
  return out;
}

std::string group_words(const PoolGroup& group) {
  if (group.size() == 1) return pool_words(*group.front());
  const auto [cases, lost] = cases_and_lost(group);
  const PoolId& first = group.front()->pool->id;
  return fmt::format("{} #{} to #{}, {}; {} of these pools given up", first.key, first.generation,
                     group.back()->pool->id.generation, count_of(cases, "case"), lost);
}

std::string timeline_description(const TimelineDrawing& drawing) {
  const auto [cases, lost] = cases_and_lost(drawing.all_pools());
  return fmt::format(
      "{} on {} in {}. {} given up before the end. The tables of pools and cases on this page have all "
      "of it in words.",
      count_of(cases, "case"), count_of(drawing.pools.size(), "pool"), format_duration(drawing.run.last_ms),
      count_of(lost, "pool"));
}

// Returns true if words that begin at x fit into the picture and do not overlap earlier words, which end at
// `free_from`. If so, sets `free_from` to their end.
bool has_room(double x, const std::string& words, double& free_from) {
  const double end = x + words_width(words);
  if (x < free_from || end > kTimelineWidth) return false;
  free_from = end;
  return true;
}

// Draws the pauses, with words where there is room for them.
void append_pauses(const TimelineDrawing& drawing) {
  constexpr double kBaseLine = 27;
  double free_from = 0;
  for (const RunPaused& pause : drawing.run.pauses) {
    if (!pause.at_ms) continue;
    const double x = drawing.x(*pause.at_ms);
    const std::string words = fmt::format("paused {}", format_duration(pause.paused_ms));
    pugi::xml_node line = append_path(drawing.svg, line_data(x, kBaseLine - 9, x, drawing.bottom()), "edge dashed");
    append_hint(line, words);
    if (has_room(x + 3, words, free_from)) append_label(drawing.svg, x + 3, kBaseLine, words);
  }
}

void append_cross(const TimelineDrawing& drawing, double x, double middle, const std::string& words) {
  constexpr double kArm = 5;
  pugi::xml_node cross = append_path(drawing.svg,
                                     line_data(x - kArm, middle - kArm, x + kArm, middle + kArm) +
                                         line_data(x - kArm, middle + kArm, x + kArm, middle - kArm),
                                     "cross");
  if (!words.empty()) append_hint(cross, words);
}

void append_pools(const TimelineDrawing& drawing, const PoolGroup& group, double top) {
  const std::string words = group_words(group);
  const double begin = drawing.x(group.front()->spawned);
  const double end = drawing.x(group.back()->end);
  const SvgBox life{.x = begin, .y = top, .width = std::max(end - begin, 1.0), .height = kPoolHeight};
  append_hint(append_rect(drawing.svg, life, "pool bordered"), words);
  if (const TimelinePool& pool = *group.front(); group.size() == 1) {
    SvgBox start = life;
    if (pool.ready) start.width = std::max(drawing.x(*pool.ready) - begin, 0.0);
    pugi::xml_node starting = append_rect(drawing.svg, start, "");
    set(starting, "fill", drawing.stripes);
    append_hint(starting, words);
  }
  for (const TimelineBar& bar : timeline_bars(group, drawing.axis)) {
    append_bar(drawing.svg, bar, kTimelineLeft, top + kCaseInset, kPoolHeight - 2 * kCaseInset, drawing.hatch,
               bar.hint());
  }
  if (std::ranges::any_of(group, &TimelinePool::ended_badly)) {
    append_cross(drawing, end, top + kPoolHeight / 2, words);
  }
}

// Writes the generations of a lane's pools, and why the pools before them were given up, where there is room.
void append_names(const TimelineDrawing& drawing, const std::vector<PoolGroup>& groups, double base_line) {
  double free_from = 0;
  const TimelinePool* before = nullptr;
  for (const PoolGroup& group : groups) {
    const TimelinePool& pool = *group.front();
    std::string words = fmt::format("#{}", pool.pool->id.generation);
    if (before == nullptr) words = fmt::format("{} {}", pool.pool->id.key, words);
    if (before != nullptr && before->ended_badly()) {
      words += fmt::format(" after {}", to_string(before->pool->retired->reason));
    }
    before = group.back();
    const double x = drawing.x(pool.spawned);
    if (has_room(x, words, free_from)) append_label(drawing.svg, x, base_line, words);
  }
}

void append_timeline_key(const TimelineDrawing& drawing) {
  constexpr double kSwatch = 14;
  constexpr double kGap = 5;
  const double top = drawing.bottom() + 6;
  double x = kTimelineLeft;
  const auto entry = [&](const char* words, const auto& draw) {
    draw(x);
    append_label(drawing.svg, x + kSwatch + kGap, top + kSwatch - 3, words);
    x += kSwatch + kGap + words_width(words) + 3 * kGap;
  };
  const auto bar_of = [&](CaseOutcome outcome) {
    return [&, outcome](double left) {
      CaseFinished c;
      c.outcome = outcome;
      TimelineBar bar;
      bar.add(c, 0, kSwatch);
      append_bar(drawing.svg, bar, left, top + 2, kSwatch - 2, drawing.hatch, "");
    };
  };
  entry("the pool starts", [&](double left) {
    set(append_rect(drawing.svg, {.x = left, .y = top, .width = kSwatch, .height = kSwatch}, "bordered"), "fill",
        drawing.stripes);
  });
  entry("pass", bar_of(CaseOutcome::pass));
  entry("skip, cancelled or not run", bar_of(CaseOutcome::skip));
  entry("fail, error, timeout, crash", bar_of(CaseOutcome::fail));
  entry("the pool was given up",
        [&](double left) { append_cross(drawing, left + kSwatch / 2, top + kSwatch / 2, ""); });
}

}  // namespace

void append_timeline(pugi::xml_node parent, const RunReport& run) {
  std::vector<TimelinePool> pools = pools_of(run);
  if (pools.empty()) return;
  const std::size_t without_pool = cases_without_pool(run, pools);
  append_text(parent, "h2", "Timeline");
  pugi::xml_node figure = parent.append_child("figure");
  std::string caption =
      "Pools, in lanes by device and number of ranks, from their start to their end, and the cases that they ran. The "
      "pointer shows which.";
  if (without_pool > 0) {
    caption += fmt::format(" {} that no pool ran {} not shown.", count_of(without_pool, "case"),
                           without_pool == 1 ? "is" : "are");
  }
  append_text(figure, "figcaption", caption);
  // "tabindex" makes it scroll with the keyboard.
  pugi::xml_node box =
      append(figure, "div", {{"class", "scroll"}, {"tabindex", "0"}, {"role", "group"}, {"aria-label", "Timeline"}});
  const auto life = [](const TimelinePool& pool) { return TimeSpan{.begin = pool.spawned, .end = pool.end}; };
  TimeAxis axis(mapped(pools, life), kTimelineWidth - kTimelineLeft - kTimelineRight);
  TimelineDrawing drawing{.run = run, .pools = std::move(pools), .axis = std::move(axis)};
  const std::vector<PoolGroup> lanes = lanes_of(drawing);
  drawing.lanes = lanes.size();
  drawing.svg = append_svg(box, {.id = "timeline",
                                 .kind = "timeline",
                                 .width = kTimelineWidth,
                                 .height = drawing.bottom() + kTimelineKey,
                                 .title = "Timeline of pools and cases",
                                 .description = timeline_description(drawing)});
  drawing.hatch = append_texture(drawing.svg, "timeline-bad", Texture::hatch, "stroke-paper");
  drawing.stripes = append_texture(drawing.svg, "timeline-start", Texture::hatch, "stroke-faint");
  append_time(drawing.svg, drawing.axis, kTimelineLeft, drawing.bottom());
  double top = kTimelineTop;
  for (const PoolGroup& lane : lanes) {
    const std::vector<PoolGroup> groups = groups_of(drawing, lane);
    append_names(drawing, groups, top + kPoolTop - 6);
    for (const PoolGroup& group : groups) append_pools(drawing, group, top + kPoolTop);
    top += kLaneHeight;
  }
  append_pauses(drawing);
  append_timeline_key(drawing);
}

}  // namespace cp_pool
