#include "driver/report/pictures/timeline_svg.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "driver/report/pictures/svg.h"
#include "driver/report/pictures/time_axis.h"
#include "driver/report/pictures/timeline_bars.h"
#include "driver/report/text_format.h"
#include "driver/report/xml_nodes.h"

namespace cp_pool {

namespace {

constexpr const char* kTimelineId = "timeline";

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
constexpr double kTickDistance = 100;
constexpr std::size_t kWordLetters = 200;

// Returns the width of words. The page has larger letters in this picture, since it is wider than others.
double words_width(const std::string& words) {
  return label_width(words) * 13 / 11;
}

struct TimelineDrawing {
  const Timeline& timeline;
  std::vector<std::vector<std::size_t>> lanes;
  TimeAxis axis;
  pugi::xml_node svg;
  std::string hatch;    // texture of bad outcomes
  std::string stripes;  // texture of a pool that starts

  [[nodiscard]] double x(double ms) const { return kTimelineLeft + axis.x(ms); }
  [[nodiscard]] double bottom() const { return kTimelineTop + kLaneHeight * static_cast<double>(lanes.size()); }
};

TimeAxis axis_of(const Timeline& timeline) {
  std::vector<TimeSpan> shown;
  for (const TimelinePool& pool : timeline.pools()) {
    shown.push_back({.begin = pool.spawned, .end = timeline.end_of(pool)});
  }
  return {std::move(shown), kTimelineWidth - kTimelineLeft - kTimelineRight};
}

bool ended_badly(const TimelinePool& pool) {
  return pool.retired && !is_expected(pool.reason);
}

std::string end_words(const TimelinePool& pool) {
  if (!pool.retired) return "still alive when the run ended";
  std::string words{to_string(pool.reason)};
  if (!pool.detail.empty()) words += ": " + cut_middle(pool.detail, kWordLetters);
  return words;
}

std::string pool_words(const TimelinePool& pool) {
  return fmt::format("{}, {}, {}; {}", to_string(pool.id),
                     pool.ready ? "ready after " + format_duration(*pool.ready - pool.spawned) : "never ready",
                     count_of(pool.cases.size(), "case"), end_words(pool));
}

// Pools of a lane that are drawn as one, because they are too short to be seen.
using PoolGroup = std::vector<const TimelinePool*>;

std::vector<PoolGroup> groups_of(const TimelineDrawing& drawing, const std::vector<std::size_t>& lane) {
  std::vector<PoolGroup> groups;
  for (const std::size_t i : lane) {
    const TimelinePool& pool = drawing.timeline.pools()[i];
    const double end = drawing.x(drawing.timeline.end_of(pool));
    if (groups.empty() || end - drawing.x(groups.back().front()->spawned) > kLeastBar) groups.emplace_back();
    groups.back().push_back(&pool);
  }
  return groups;
}

std::string group_words(const PoolGroup& group) {
  if (group.size() == 1) return pool_words(*group.front());
  std::size_t cases = 0;
  for (const TimelinePool* pool : group) cases += pool->cases.size();
  const auto lost =
      static_cast<std::size_t>(std::ranges::count_if(group, [](const auto* p) { return ended_badly(*p); }));
  return fmt::format("{} #{} to #{}, {}; {} of these pools given up", group.front()->id.key,
                     group.front()->id.generation, group.back()->id.generation, count_of(cases, "case"), lost);
}

std::string timeline_description(const Timeline& timeline) {
  std::size_t cases = 0;
  std::size_t lost = 0;
  for (const TimelinePool& pool : timeline.pools()) {
    cases += pool.cases.size();
    lost += ended_badly(pool) ? 1 : 0;
  }
  return fmt::format(
      "{} on {} in {}. {} given up before the end. The tables of pools and cases on this page have all "
      "of it in words.",
      count_of(cases, "case"), count_of(timeline.pools().size(), "pool"), format_duration(timeline.end()),
      count_of(lost, "pool"));
}

void append_time(const TimelineDrawing& drawing) {
  constexpr double kBaseLine = 11;
  for (const TimeAxis::Tick& tick : drawing.axis.ticks(kTickDistance)) {
    append_path(drawing.svg, line_data(kTimelineLeft + tick.x, kBaseLine + 4, kTimelineLeft + tick.x, drawing.bottom()),
                "thin");
    append_label(drawing.svg, kTimelineLeft + tick.x, kBaseLine, tick.text, "faint");
  }
  for (const TimeAxis::Cut& cut : drawing.axis.cuts()) {
    pugi::xml_node mark = append_rect(drawing.svg,
                                      {.x = kTimelineLeft + cut.x - TimeAxis::kCutWidth / 2,
                                       .y = kBaseLine + 4,
                                       .width = TimeAxis::kCutWidth,
                                       .height = drawing.bottom() - kBaseLine - 4},
                                      "fill-padding");
    append_hint(mark, fmt::format("{} without a pool are left out", format_duration(cut.ms)));
    append_label(drawing.svg, kTimelineLeft + cut.x, drawing.bottom() - 4, "//", "middle");
  }
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
  for (const TimelinePause& pause : drawing.timeline.pauses()) {
    const double x = drawing.x(pause.at);
    const std::string words = fmt::format("paused {}", format_duration(pause.length));
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
  const double end = drawing.x(drawing.timeline.end_of(*group.back()));
  const SvgBox life{.x = begin, .y = top, .width = std::max(end - begin, 1.0), .height = kPoolHeight};
  append_hint(append_rect(drawing.svg, life, "pool bordered"), words);
  if (const TimelinePool& pool = *group.front(); group.size() == 1) {
    SvgBox start = life;
    if (pool.ready) start.width = std::max(drawing.x(*pool.ready) - begin, 0.0);
    pugi::xml_node starting = append_rect(drawing.svg, start, "");
    set(starting, "fill", drawing.stripes);
    append_hint(starting, words);
  }
  std::vector<const TimelineCase*> cases;
  for (const TimelinePool* pool : group) {
    for (const TimelineCase& c : pool->cases) cases.push_back(&c);
  }
  for (const TimelineBar& bar : timeline_bars(cases, drawing.axis, kLeastBar)) {
    append_bar(drawing.svg, bar, kTimelineLeft, top + kCaseInset, kPoolHeight - 2 * kCaseInset, drawing.hatch,
               bar.hint());
  }
  if (std::ranges::any_of(group, [](const TimelinePool* pool) { return ended_badly(*pool); })) {
    append_cross(drawing, end, top + kPoolHeight / 2, words);
  }
}

// Writes the generations of a lane's pools, and why the pools before them were given up, where there is room.
void append_names(const TimelineDrawing& drawing, const std::vector<PoolGroup>& groups, double base_line) {
  double free_from = 0;
  const TimelinePool* before = nullptr;
  for (const PoolGroup& group : groups) {
    const TimelinePool& pool = *group.front();
    std::string words = fmt::format("#{}", pool.id.generation);
    if (before == nullptr) words = fmt::format("{} {}", pool.id.key, words);
    if (before != nullptr && ended_badly(*before)) words += fmt::format(" after {}", to_string(before->reason));
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
      const TimelineCase c{.name = "", .outcome = outcome, .urgency = urgency_of(outcome)};
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

void append_timeline(pugi::xml_node parent, const Timeline& timeline) {
  if (timeline.pools().empty()) return;
  append_text(parent, "h2", "Timeline");
  pugi::xml_node figure = parent.append_child("figure");
  std::string caption =
      "Pools, in lanes by device and number of ranks, from their start to their end, and the cases that they ran. The "
      "pointer shows which.";
  if (timeline.without_pool() > 0) {
    caption += fmt::format(" {} that no pool ran {} not shown.", count_of(timeline.without_pool(), "case"),
                           timeline.without_pool() == 1 ? "is" : "are");
  }
  append_text(figure, "figcaption", caption);
  pugi::xml_node box = figure.append_child("div");
  set(box, "class", "scroll");
  set(box, "tabindex", "0");  // makes it scroll with the keyboard
  set(box, "role", "group");
  set(box, "aria-label", "Timeline");
  TimelineDrawing drawing{.timeline = timeline,
                          .lanes = timeline.lanes(),
                          .axis = axis_of(timeline),
                          .svg = {},
                          .hatch = "",
                          .stripes = ""};
  drawing.svg = append_svg(box, {.id = kTimelineId,
                                 .kind = "timeline",
                                 .width = kTimelineWidth,
                                 .height = drawing.bottom() + kTimelineKey,
                                 .title = "Timeline of pools and cases",
                                 .description = timeline_description(timeline)});
  drawing.hatch = append_texture(drawing.svg, "timeline-bad", Texture::hatch, "stroke-paper");
  drawing.stripes = append_texture(drawing.svg, "timeline-start", Texture::hatch, "stroke-faint");
  append_time(drawing);
  double top = kTimelineTop;
  for (const std::vector<std::size_t>& lane : drawing.lanes) {
    const std::vector<PoolGroup> groups = groups_of(drawing, lane);
    append_names(drawing, groups, top + kPoolTop - 6);
    for (const PoolGroup& group : groups) append_pools(drawing, group, top + kPoolTop);
    top += kLaneHeight;
  }
  append_pauses(drawing);
  append_timeline_key(drawing);
}

}  // namespace cp_pool
