#include "driver/reporters/trace_sink.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cases/case_phases.h"
#include "driver/reporters/case_runs.h"
#include "driver/reporters/events_json.h"
#include "driver/reporters/failure_text.h"
#include "driver/reporters/text_format.h"
#include "driver/reporters/timings_table.h"

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

std::string pool_name(const PoolId& id) {
  return "pool " + to_string(id);
}

Json named(const char* what, int process, std::optional<int> thread, const std::string& name) {
  Json event{{"ph", "M"}, {"name", what}, {"pid", process}};
  if (thread) event["tid"] = *thread;
  event["args"] = {{"name", name}};
  return event;
}

std::int64_t micros(double milliseconds) {
  return std::llround(milliseconds * 1000);
}

// Returns the phases with times, in the order in which a case goes through them.
std::vector<std::pair<std::string, double>> in_order(const std::map<std::string, double>& timings_ms) {
  const auto place = [](const std::pair<std::string, double>& timing) { return place_of_phase(timing.first); };
  std::vector<std::pair<std::string, double>> out(timings_ms.begin(), timings_ms.end());
  std::erase_if(out, [](const auto& timing) { return timing.first == case_phase::kDiagnosis || timing.second <= 0; });
  std::ranges::stable_sort(out, {}, place);
  return out;
}

}  // namespace

TraceSink::TraceSink(std::filesystem::path path) : file_{std::move(path)} {}

void TraceSink::on_event(const Event& event) {
  std::visit(
      [this](const auto& e) {
        if constexpr (requires { e.at_ms; }) {
          if (e.at_ms) on(e);
        }
      },
      event);
  if (const auto* started = std::get_if<RunStarted>(&event)) run_ = *started;
  if (const auto* progress = std::get_if<CaseProgress>(&event)) on(*progress);
  if (const auto* finished = std::get_if<RunFinished>(&event)) {
    end_ = std::max(end_, micros(finished->duration_ms));
    file_.commit(document());
  }
}

TraceSink::Micros TraceSink::note(double at_ms) {
  const Micros at = micros(at_ms);
  end_ = std::max(end_, at);
  return at;
}

// Searches from the back: events belong to the latest pool of this ID.
std::optional<std::size_t> TraceSink::find(const PoolId& id) const {
  for (std::size_t i = pools_.size(); i-- > 0;) {
    if (pools_[i].id.key == id.key && pools_[i].id.generation == id.generation) return i;
  }
  return std::nullopt;
}

void TraceSink::on(const PoolSpawned& event) {
  TracedPool& pool = pools_.emplace_back();
  pool.id = event.pool;
  pool.slots = event.slots;
  pool.spawned = note(*event.at_ms);
}

void TraceSink::on(const PoolReady& event) {
  const Micros at = note(*event.at_ms);
  const auto pool = find(event.pool);
  if (!pool) return;
  pools_[*pool].ready = at;
}

void TraceSink::on(const PoolRetired& event) {
  const Micros at = note(*event.at_ms);
  const auto pool = find(event.pool);
  if (!pool) return;
  pools_[*pool].retired = at;
  pools_[*pool].why = std::string{to_string(event.reason)} + (event.detail.empty() ? "" : ": " + event.detail);
}

void TraceSink::on(const CaseStarted& event) {
  const Micros at = note(*event.at_ms);
  const auto pool = find(event.pool);
  if (!pool) return;
  if (const auto before = running_.find(event.index); before != running_.end()) end_try(before->second, at);
  running_[event.index] = {.pool = *pool, .sent = at, .attempt = event.attempt, .id = event.id, .phases = {}};
}

// Ends a try whose pool was lost: its case is sent once more.
void TraceSink::end_try(const Running& run, Micros at) {
  TracedPool& pool = pools_[run.pool];
  pool.cases.push_back({.name = fmt::format("{} (attempt {})", run.id, run.attempt),
                        .category = "attempt",
                        .begin = run.sent,
                        .end = std::min(at, pool.retired.value_or(at)),
                        .arguments = {}});
}

void TraceSink::on(const CaseProgress& event) {
  const auto run = running_.find(event.index);
  if (run == running_.end() || event.phase.empty()) return;
  auto& phases = run->second.phases;
  if (phases.empty() || phases.back().second != event.phase) phases.emplace_back(event.running_ms, event.phase);
}

void TraceSink::on(const CaseFinished& event) {
  const Micros at = note(*event.at_ms);
  std::vector<std::pair<std::string, std::string>> arguments{{"outcome", std::string{to_string(event.outcome)}},
                                                             {"duration", format_duration(event.duration_ms)}};
  if (!event.reason.empty()) arguments.emplace_back("reason", shortened(event.reason));
  const auto known = running_.extract(event.index);
  const auto pool = event.pool ? find(*event.pool) : std::nullopt;
  if (!pool) {
    marks_.push_back(
        {.name = case_name(event), .category = "case", .begin = at, .end = at, .arguments = std::move(arguments)});
    return;
  }
  Running run;
  if (known && known.mapped().pool == *pool) {
    run = known.mapped();
  } else {
    run = {.pool = *pool, .sent = at - micros(event.duration_ms), .attempt = 1, .id = event.id, .phases = {}};
  }
  TracedPool& on_pool = pools_[*pool];
  run.sent = std::clamp(run.sent, std::min(on_pool.ready.value_or(on_pool.spawned), at), at);
  const Micros judged = std::min(run.sent + micros(event.duration_ms), at);
  on_pool.cases.push_back(
      {.name = case_name(event), .category = "case", .begin = run.sent, .end = at, .arguments = std::move(arguments)});
  if (event.diagnosis && event.diagnosis->ms > 0) {
    on_pool.cases.push_back({.name = case_phase::kDiagnosis,
                             .category = "diagnosis",
                             .begin = std::max(judged, at - micros(event.diagnosis->ms)),
                             .end = at,
                             .arguments = {{"id", event.diagnosis->id}}});
  }
  add_phases(on_pool, event, run, judged);
}

// Places the phases one after another from the beginning of the case. They are shortened if they do not fit, since the
// slowest rank may be another one in each phase.
std::vector<TraceSink::Span> TraceSink::phases_of(const std::map<std::string, double>& timings_ms,
                                                  const CaseFinished& event, Micros begin, Micros end) {
  const auto timings = in_order(timings_ms);
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
// those that were reported during the case.
void TraceSink::add_phases(TracedPool& pool, const CaseFinished& event, const Running& run, Micros end) {
  const auto add = [&](int rank, std::vector<Span> spans) {
    if (spans.empty()) return;
    std::vector<Span>& track = pool.phases[rank];
    track.insert(track.end(), std::make_move_iterator(spans.begin()), std::make_move_iterator(spans.end()));
  };
  const bool by_rank = std::ranges::any_of(event.ranks, [](const auto& rank) { return !rank.timings_ms.empty(); });
  if (by_rank) {
    for (const auto& rank : event.ranks) add(rank.rank, phases_of(rank.timings_ms, event, run.sent, end));
    return;
  }
  if (const std::vector<Span> slowest = phases_of(event.timings_ms, event, run.sent, end); !slowest.empty()) {
    add(kSlowest, slowest);
    return;
  }
  for (std::size_t i = 0; i < run.phases.size(); ++i) {
    const bool last = i + 1 == run.phases.size();
    const Micros begin = std::min(run.sent + micros(run.phases[i].first), end);
    add(kSlowest, {{.name = run.phases[i].second,
                    .category = "phase",
                    .begin = begin,
                    .end = last ? end : std::min(run.sent + micros(run.phases[i + 1].first), end),
                    .arguments = {{"case", case_name(event)}, {"placed", "as the worker reported it"}}}});
  }
}

// A replay is reported at its end. The pool may have been sent other cases before it.
void TraceSink::on(const CaseReplayed& event) {
  const Micros at = note(*event.at_ms);
  const auto pool = event.pool ? find(*event.pool) : std::nullopt;
  if (!pool) return;
  pools_[*pool].cases.push_back({.name = fmt::format("{} (replay {})", event.id, event.replay),
                                 .category = "replay",
                                 .begin = std::max(at - micros(event.duration_ms), pools_[*pool].spawned),
                                 .end = at,
                                 .arguments = {{"outcome", std::string{to_string(event.outcome)}}}});
}

void TraceSink::on(const CaseVerdict& event) {
  const Micros at = note(*event.at_ms);
  marks_.push_back({.name = fmt::format("verdict of {}: {}", event.id, name_of(event.verdict.kind)),
                    .category = "verdict",
                    .begin = at,
                    .end = at,
                    .arguments = {}});
}

void TraceSink::on(const RunPaused& event) {
  const Micros at = note(*event.at_ms);
  marks_.push_back({.name = "paused for " + format_duration(event.paused_ms),
                    .category = "pause",
                    .begin = at,
                    .end = at,
                    .arguments = {}});
}

std::string TraceSink::document() const {
  Json events = Json::array();
  const auto add = [&](const Span& span, int process, int thread, const char* kind) {
    Json event{{"ph", kind},     {"name", span.name}, {"cat", span.category},
               {"pid", process}, {"tid", thread},     {"ts", span.begin}};
    if (*kind == 'X') {
      event["dur"] = span.end - span.begin;
    } else {
      event["s"] = "t";  // scope of the mark: its thread
    }
    Json arguments = Json::object();
    for (const auto& [name, value] : span.arguments) arguments[name] = value;
    event["args"] = std::move(arguments);
    events.push_back(std::move(event));
  };

  events.push_back(named("process_name", kRunProcess, std::nullopt, "run"));
  events.push_back(named("thread_name", kRunProcess, kLife, "run"));
  add({.name = run_.title, .category = "run", .begin = 0, .end = end_, .arguments = {}}, kRunProcess, kLife, "X");
  for (const Span& mark : marks_) add(mark, kRunProcess, kLife, "i");

  const auto end_of = [&](const TracedPool& pool) { return std::max(pool.retired.value_or(end_), pool.spawned); };
  std::map<int, std::vector<const TracedPool*>> by_slot;
  for (const TracedPool& pool : pools_) {
    for (const int slot : pool.slots) by_slot[slot].push_back(&pool);
  }
  if (!by_slot.empty()) events.push_back(named("process_name", kSlotsProcess, std::nullopt, "slots"));
  for (const auto& [slot, held] : by_slot) {
    const std::string kind = run_.device == "cuda" ? "GPU slot" : "slot";
    events.push_back(named("thread_name", kSlotsProcess, slot + 1, fmt::format("{} {}", kind, slot)));
    // A pool gives its slots back as soon as it begins to end. The next one may have started while its cases ran.
    const auto begin_of = [&held](std::size_t i) {
      const bool follows_cases = i > 0 && !held[i - 1]->cases.empty();
      return follows_cases ? std::max(held[i]->spawned, held[i - 1]->cases.back().end) : held[i]->spawned;
    };
    for (std::size_t i = 0; i < held.size(); ++i) {
      const Micros next = i + 1 < held.size() ? begin_of(i + 1) : end_of(*held[i]);
      const Micros begin = begin_of(i);
      add({.name = pool_name(held[i]->id),
           .category = "slot",
           .begin = begin,
           .end = std::max(begin, std::min(end_of(*held[i]), next)),
           .arguments = {}},
          kSlotsProcess, slot + 1, "X");
    }
  }

  for (std::size_t i = 0; i < pools_.size(); ++i) {
    const TracedPool& pool = pools_[i];
    const int process = kFirstPool + static_cast<int>(i);
    events.push_back(named("process_name", process, std::nullopt, pool_name(pool.id)));
    events.push_back(named("thread_name", process, kLife, "pool"));
    const Micros end = end_of(pool);
    add({.name = pool_name(pool.id), .category = "pool", .begin = pool.spawned, .end = end, .arguments = {}}, process,
        kLife, "X");
    add({.name = "start",
         .category = "pool",
         .begin = pool.spawned,
         .end = std::min(pool.ready.value_or(end), end),
         .arguments = {}},
        process, kLife, "X");
    for (const Span& span : pool.cases) add(span, process, kLife, "X");
    if (pool.retired) {
      add({.name = "retired: " + pool.why, .category = "pool", .begin = end, .end = end, .arguments = {}}, process,
          kLife, "i");
    }
    for (const auto& [rank, phases] : pool.phases) {
      const int track = rank == kSlowest ? kPhases : kFirstRank + rank;
      events.push_back(named("thread_name", process, track,
                             rank == kSlowest ? "phases (slowest rank)" : fmt::format("rank {}", rank)));
      for (const Span& phase : phases) add(phase, process, track, "X");
    }
  }

  const std::string head = fmt::format(R"({},"title":{},"device":{},"version":{}}},"traceEvents":)", kRunTraceStart,
                                       to_line(run_.title), to_line(run_.device), to_line(run_.version));
  return head + to_line(events) + "}\n";
}

}  // namespace cp_pool
