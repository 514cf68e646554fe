#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cases/case_phases.h"
#include "driver/log/events_json.h"
#include "driver/report/case_text.h"
#include "driver/report/reports.h"
#include "driver/report/text_format.h"
#include "driver/report/time_tables.h"

namespace cp_pool {
namespace {

using Json = nlohmann::ordered_json;

// The processes of the trace are the run, its slots, and each pool. A pool has these threads:
constexpr int kRunProcess = 1;
constexpr int kSlotsProcess = 2;
constexpr int kFirstPool = 10;
constexpr int kLife = 1;
constexpr int kPhases = 2;
constexpr int kFirstRank = 3;

Json named(const char* what, int process, std::optional<int> thread, const std::string& name) {
  Json event{{"ph", "M"}, {"name", what}, {"pid", process}};
  if (thread) event["tid"] = *thread;
  event["args"] = {{"name", name}};
  return event;
}

constexpr int kSlowestRank = -1;

// All times are microseconds of the run's clock, from its beginning.
using Micros = std::int64_t;

Micros micros(double milliseconds) {
  return std::llround(milliseconds * 1000);
}

struct Span {
  std::string name;
  const char* category = "";
  Micros begin = 0;
  Micros end = 0;
  Json arguments = Json::object();
};

struct TracedPool : PoolLife {
  std::vector<Span> cases = {};                  // cases, earlier tries of cases, diagnoses and replays
  std::map<int, std::vector<Span>> phases = {};  // by rank; kSlowestRank holds those of the slowest rank of each phase
};

// Places the phases one after another, in the order in which a case goes through them, from its beginning. They are
// shortened if they do not fit, since the slowest rank may be another one in each phase.
std::vector<Span> phases_of(const std::map<std::string, double>& timings_ms, const CaseFinished& event, Micros begin,
                            Micros end) {
  std::vector<std::pair<std::string, double>> timings(timings_ms.begin(), timings_ms.end());
  std::erase_if(timings, [](const auto& one) { return one.first == case_phase::kDiagnosis || one.second <= 0; });
  std::ranges::stable_sort(timings, {}, [](const auto& timing) { return place_of_phase(timing.first); });
  const double room = static_cast<double>(end - begin) / 1000;
  const double sum = std::accumulate(timings.begin(), timings.end(), 0.0,
                                     [](double all, const auto& timing) { return all + timing.second; });
  const double scale = sum > room ? room / sum : 1;
  std::vector<Span> out;
  double before = 0;
  for (const auto& [phase, ms] : timings) {
    const Micros from = begin + micros(before);
    before += ms * scale;
    out.push_back({.name = phase,
                   .category = "phase",
                   .begin = from,
                   .end = std::min(begin + micros(before), end),
                   .arguments = {{"case", case_name(event)}, {"time", format_duration(ms)}, {"placed", "in order"}}});
  }
  return out;
}

// Adds the phases of each rank. If the worker does not send them, adds those of the slowest rank, and without any times
// those that were reported during the case, `reported`.
void add_phases(TracedPool& pool, const CaseFinished& event,
                const std::vector<std::pair<double, std::string>>& reported, Micros sent, Micros end) {
  const auto add = [&](int rank, std::vector<Span> spans) {
    if (spans.empty()) return;
    std::vector<Span>& track = pool.phases[rank];
    track.insert(track.end(), std::make_move_iterator(spans.begin()), std::make_move_iterator(spans.end()));
  };
  const bool by_rank = std::ranges::any_of(event.ranks, [](const auto& rank) { return !rank.timings_ms.empty(); });
  if (by_rank) {
    for (const auto& rank : event.ranks) add(rank.rank, phases_of(rank.timings_ms, event, sent, end));
    return;
  }
  if (const std::vector<Span> slowest = phases_of(event.timings_ms, event, sent, end); !slowest.empty()) {
    add(kSlowestRank, slowest);
    return;
  }
  for (std::size_t i = 0; i < reported.size(); ++i) {
    const bool last = i + 1 == reported.size();
    const Micros begin = std::min(sent + micros(reported[i].first), end);
    add(kSlowestRank, {{.name = reported[i].second,
                        .category = "phase",
                        .begin = begin,
                        .end = last ? end : std::min(sent + micros(reported[i + 1].first), end),
                        .arguments = {{"case", case_name(event)}, {"placed", "as the worker reported it"}}}});
  }
}

Json arguments_of(const CaseFinished& event) {
  Json arguments{{"outcome", to_string(event.outcome)}, {"duration", format_duration(event.duration_ms)}};
  if (!event.reason.empty()) arguments["reason"] = shortened(event.reason);
  return arguments;
}

// Adds a try that the pool ended. `sent`: when the pool got it, if that is known.
void add_try(TracedPool& pool, const CaseFinished& event, const ReportedSend* sent) {
  const Micros at = micros(*event.at_ms);
  const Micros told = sent == nullptr ? at - micros(event.duration_ms) : micros(sent->at_ms);
  const Micros begin = std::clamp(told, std::min(micros(pool.ready.value_or(pool.spawned)), at), at);
  const Micros judged = std::min(begin + micros(event.duration_ms), at);
  pool.cases.push_back(
      {.name = case_name(event), .category = "case", .begin = begin, .end = at, .arguments = arguments_of(event)});
  if (event.diagnosis && event.diagnosis->ms > 0) {
    pool.cases.push_back({.name = case_phase::kDiagnosis,
                          .category = "diagnosis",
                          .begin = std::max(judged, at - micros(event.diagnosis->ms)),
                          .end = at,
                          .arguments = {{"id", event.diagnosis->id}}});
  }
  add_phases(pool, event, sent == nullptr ? decltype(sent->phases){} : sent->phases, begin, judged);
}

class RunTrace {
 public:
  explicit RunTrace(const RunReport& run) : run_{run}, end_{micros(std::max(run.last_ms, run.end.duration_ms))} {
    for (PoolLife& life : run.pool_lives()) pools_.push_back({std::move(life)});
    for (const ReportedCase& c : run.cases) {
      for (const ReportedTry& each : c.tries) add_lost_and_unsent(each);
    }
    for (TracedPool& pool : pools_) {
      for (const ReportedTry* const each : pool.tries) {
        const bool known = !each->sent.empty() && find_pool(pools_, each->sent.back().pool) == &pool;
        add_try(pool, each->end, known ? &each->sent.back() : nullptr);
      }
    }
    // A replay is reported at its end. The pool may have been sent other cases before it.
    for (const CaseReplayed& replay : run.replays) {
      TracedPool* const pool = replay.pool && replay.at_ms ? find_pool(pools_, *replay.pool) : nullptr;
      if (pool == nullptr) continue;
      const Micros at = micros(*replay.at_ms);
      pool->cases.push_back({.name = fmt::format("{} (replay {})", replay.id, replay.replay),
                             .category = "replay",
                             .begin = std::max(at - micros(replay.duration_ms), micros(pool->spawned)),
                             .end = at,
                             .arguments = {{"outcome", to_string(replay.outcome)}}});
    }
    for (TracedPool& pool : pools_) std::ranges::stable_sort(pool.cases, {}, &Span::end);
    for (const auto& [index, event] : run.verdicts) {
      mark(event.at_ms, "verdict", fmt::format("verdict of {}: {}", event.id, name_of(event.verdict.kind)));
    }
    for (const RunPaused& pause : run.pauses) {
      mark(pause.at_ms, "pause", "paused for " + format_duration(pause.paused_ms));
    }
    std::ranges::stable_sort(marks_, {}, &Span::begin);
  }

  [[nodiscard]] std::string document() const;

 private:
  // Adds the times that a case was sent to a pool that was then lost, and a case that no pool ran.
  void add_lost_and_unsent(const ReportedTry& tried) {
    for (std::size_t i = 0; i + 1 < tried.sent.size(); ++i) {
      const ReportedSend& sent = tried.sent[i];
      TracedPool* const pool = find_pool(pools_, sent.pool);
      if (pool == nullptr) continue;
      const double again = tried.sent[i + 1].at_ms;
      pool->cases.push_back({.name = fmt::format("{} (attempt {})", tried.end.id, sent.attempt),
                             .category = "attempt",
                             .begin = micros(sent.at_ms),
                             .end = micros(std::min(again, pool->retired.value_or(again)))});
    }
    if (tried.end.pool && find_pool(pools_, *tried.end.pool) != nullptr) return;
    mark(tried.end.at_ms, "case", case_name(tried.end), arguments_of(tried.end));
  }

  void mark(std::optional<double> at_ms, const char* category, std::string name, Json arguments = Json::object()) {
    if (!at_ms) return;
    marks_.push_back({.name = std::move(name),
                      .category = category,
                      .begin = micros(*at_ms),
                      .end = micros(*at_ms),
                      .arguments = std::move(arguments)});
  }

  const RunReport& run_;
  Micros end_;  // time of the last event
  std::vector<TracedPool> pools_;
  std::vector<Span> marks_;  // without a length: pauses, verdicts, and cases that no pool ran
};

std::string RunTrace::document() const {
  Json events = Json::array();
  const auto add = [&](const Span& span, int process, int thread, const char* kind) {
    Json event{{"ph", kind},     {"name", span.name}, {"cat", span.category},
               {"pid", process}, {"tid", thread},     {"ts", span.begin}};
    if (*kind == 'X') {
      event["dur"] = span.end - span.begin;
    } else {
      event["s"] = "t";  // scope of the mark: its thread
    }
    event["args"] = span.arguments;
    events.push_back(std::move(event));
  };

  events.push_back(named("process_name", kRunProcess, std::nullopt, "run"));
  events.push_back(named("thread_name", kRunProcess, kLife, "run"));
  add({.name = run_.header.title, .category = "run", .end = end_}, kRunProcess, kLife, "X");
  for (const Span& mark : marks_) add(mark, kRunProcess, kLife, "i");

  const auto end_of = [&](const TracedPool& pool) {
    return std::max(pool.retired ? micros(*pool.retired) : end_, micros(pool.spawned));
  };
  std::map<int, std::vector<const TracedPool*>> by_slot;
  for (const TracedPool& pool : pools_) {
    for (const int slot : pool.pool->spawned->slots) by_slot[slot].push_back(&pool);
  }
  if (!by_slot.empty()) events.push_back(named("process_name", kSlotsProcess, std::nullopt, "slots"));
  for (const auto& [slot, held] : by_slot) {
    const std::string kind = run_.header.device == "cuda" ? "GPU slot" : "slot";
    events.push_back(named("thread_name", kSlotsProcess, slot + 1, fmt::format("{} {}", kind, slot)));
    // A pool gives its slots back as soon as it begins to end. The next one may have started while its cases ran.
    const auto begin_of = [&held](std::size_t i) {
      const Micros spawned = micros(held[i]->spawned);
      return i > 0 && !held[i - 1]->cases.empty() ? std::max(spawned, held[i - 1]->cases.back().end) : spawned;
    };
    for (std::size_t i = 0; i < held.size(); ++i) {
      const Micros next = i + 1 < held.size() ? begin_of(i + 1) : end_of(*held[i]);
      const Micros begin = begin_of(i);
      add({.name = pool_name(held[i]->pool->id),
           .category = "slot",
           .begin = begin,
           .end = std::max(begin, std::min(end_of(*held[i]), next))},
          kSlotsProcess, slot + 1, "X");
    }
  }

  for (std::size_t i = 0; i < pools_.size(); ++i) {
    const TracedPool& pool = pools_[i];
    const int process = kFirstPool + static_cast<int>(i);
    events.push_back(named("process_name", process, std::nullopt, pool_name(pool.pool->id)));
    events.push_back(named("thread_name", process, kLife, "pool"));
    const Micros end = end_of(pool);
    const Micros spawned = micros(pool.spawned);
    const Micros ready = pool.ready ? std::min(micros(*pool.ready), end) : end;
    add({.name = pool_name(pool.pool->id), .category = "pool", .begin = spawned, .end = end}, process, kLife, "X");
    add({.name = "start", .category = "pool", .begin = spawned, .end = ready}, process, kLife, "X");
    for (const Span& span : pool.cases) add(span, process, kLife, "X");
    if (pool.retired) {
      const PoolRetired& retired = *pool.pool->retired;
      const std::string detail = retired.detail.empty() ? "" : ": " + retired.detail;
      add({.name = fmt::format("retired: {}{}", to_string(retired.reason), detail),
           .category = "pool",
           .begin = end,
           .end = end},
          process, kLife, "i");
    }
    for (const auto& [rank, phases] : pool.phases) {
      const int track = rank == kSlowestRank ? kPhases : kFirstRank + rank;
      events.push_back(named("thread_name", process, track,
                             rank == kSlowestRank ? "phases (slowest rank)" : fmt::format("rank {}", rank)));
      for (const Span& phase : phases) add(phase, process, track, "X");
    }
  }

  const std::string head =
      fmt::format(R"({},"title":{},"device":{},"version":{}}},"traceEvents":)", kRunTraceStart,
                  to_line(run_.header.title), to_line(run_.header.device), to_line(run_.header.version));
  return head + to_line(events) + "}\n";
}

}  // namespace

std::string trace_report(const RunReport& run) {
  return RunTrace(run).document();
}

}  // namespace cp_pool
