#include "driver/cli/history/earlier_run.h"

#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "cases/text_hash.h"
#include "driver/cli/error_reporting.h"
#include "driver/core/exit_code.h"
#include "driver/log/run_log.h"

namespace cp_pool {
namespace {

// Returns why two times cannot be compared: "seqlen_q 2048 there and 64 here".
std::optional<std::string> difference(const PerfBaseline::Entry& before, const Payload& now, const RunConfig& config) {
  const auto say = [](std::string_view what, std::string_view there, std::string_view here) {
    return fmt::format("{} {} there and {} here", what, there, here);
  };
  const Case* const there = before.payload->attention();
  const Case* const here = now->attention();
  if (there == nullptr || here == nullptr) return "other kinds of cases there and here";
  for (const CaseField& field : case_fields()) {
    const std::string was = field_text(field, *there);
    const std::string is = field_text(field, *here);
    if (was != is) return say(field.name, was, is);
  }
  if (!before.device.empty() && before.device != config.device) return say("device", before.device, config.device);
  const bool graph = config.perf && config.perf->graph;
  if (before.graph == graph) return std::nullopt;
  return before.graph ? "--graph there and not here" : "--graph here and not there";
}

// The outcomes of the cases of one run. A case that ran several times has its worst outcome, and its last duration.
std::map<CaseTrends::key_type, EarlierRun> cases_of(const RunRecord& record, const RunStarted& header) {
  std::map<CaseTrends::key_type, EarlierRun> cases;
  read_events(record.events(), "the record", [&](const Event& event, const auto&) {
    const auto* finished = std::get_if<CaseFinished>(&event);
    if (finished == nullptr || !was_reached(finished->outcome)) return;
    const EarlierRun now{.run = record.id, .outcome = finished->outcome, .duration_ms = finished->duration_ms};
    const auto [known, is_new] = cases.try_emplace({finished->id, implementation_of(header, *finished)}, now);
    if (is_new) return;
    known->second.duration_ms = now.duration_ms;
    if (went_well(known->second.outcome)) known->second.outcome = now.outcome;
  });
  return cases;
}

bool is_like(const RunStarted& run, const RunStarted& other) {
  return run.size == other.size && run.device == other.device &&
         std::ranges::find_first_of(run.implementations, other.implementations) != run.implementations.end();
}

// Sorts cases, the least first: whether the case went well, and its negative duration.
using Place = std::pair<bool, double>;

Place place_of(const Item& named, const CaseHistory& history) {
  const auto known = history.duration_ms.find(named.id);
  const double ms = known == history.duration_ms.end() ? std::numeric_limits<double>::infinity() : known->second;
  return {!history.failed.contains(named.id), -ms};
}

}  // namespace

FailedCases read_failed_cases(const std::filesystem::path& events_file) {
  struct Failure {
    CaseKey key;
    std::size_t run = 0;
    std::optional<Payload> payload;
  };
  FailedCases out;
  std::vector<Failure> failures;
  CountedRuns counted;
  const auto add = [&](std::size_t run, CaseKey key, const std::optional<Payload>& payload, bool failed, bool ran) {
    counted.add(key, run, ran);
    if (failed) failures.push_back({.key = std::move(key), .run = run, .payload = payload});
  };
  std::vector<LoggedRun> runs;  // if the file does not begin with a run_started, the first has no header
  read_events(events_file, "the file", [&](const Event& event, auto) {
    if (runs.empty() || std::holds_alternative<RunStarted>(event)) runs.emplace_back();
    runs.back().take(event);
    const auto* const finished = std::get_if<CaseFinished>(&event);
    if (finished == nullptr) return;
    const RunStarted& header = runs.back().header;
    const bool ran = was_reached(finished->outcome);
    add(runs.size(), case_key(header, finished->id, implementation_of(header, *finished), finished->payload),
        finished->payload, !went_well(*finished), ran);
    if (ran) out.duration_ms[finished->id] = finished->duration_ms;
  });
  if (runs.empty()) refuse_without_run(events_file);
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const LoggedRun& logged = runs[run];
    out.unknown_rest |= logged.left_unknown_cases();
    for (const auto& [id, left] : logged.pending) {
      add(run + 1, case_key(logged.header, id, implementation_of(logged.header, {}), left.payload), left.payload, true,
          false);
    }
  }
  out.title = runs.back().header.title;
  out.size = runs.back().header.size;
  counted.close();
  std::ranges::stable_sort(failures, {}, &Failure::run);
  std::set<CaseKey> seen;
  for (const Failure& failure : failures) {
    if (failure.run != counted.counted(failure.key) || !seen.insert(failure.key).second) continue;
    out.ids.insert(failure.key.id);
    out.cases.push_back({.id = failure.key.id, .payload = failure.payload});
  }
  return out;
}

void expect_failures(const FailedCases& failed, const std::filesystem::path& events_file) {
  const std::string file = events_file.string();
  const std::string cut =
      fmt::format("{} was cut off before its run ended: the cases that had not started are unknown", file);
  if (failed.ids.empty() && failed.unknown_rest) throw CommandError(ExitCode::bad_input, cut);
  if (failed.unknown_rest) report_warning(cut + ", so they are not selected");
  if (failed.ids.empty()) {
    throw CommandError(ExitCode::nothing_selected, "nothing failed in {}: its cases passed or were skipped", file);
  }
}

PerfBaseline read_perf_baseline(const std::filesystem::path& events_file) {
  PerfBaseline baseline;
  baseline.name = events_file.string();
  std::string device;
  read_events(events_file, "the baseline", [&](const Event& event, auto) {
    if (const auto* const header = std::get_if<RunStarted>(&event)) device = header->device;
    const auto* const finished = std::get_if<CaseFinished>(&event);
    if (finished == nullptr || !finished->perf || finished->perf->ms() <= 0) return;
    baseline.cases[finished->id] = {.ms = finished->perf->ms(),
                                    .payload = finished->payload,
                                    .device = device,
                                    .graph = finished->perf->request.graph};
  });
  if (baseline.cases.empty()) {
    throw CommandError(ExitCode::bad_input, "the baseline {} has no times: was it written by --mode perf --events?",
                       baseline.name);
  }
  return baseline;
}

void compare_with(const PerfBaseline& baseline, const RunConfig& config, std::span<Item> cases) {
  std::size_t common = 0;
  std::size_t different = 0;
  std::string example;
  for (Item& named : cases) {
    const auto before = baseline.cases.find(named.id);
    if (before == baseline.cases.end()) continue;
    ++common;
    named.baseline_ms = before->second.ms;
    const auto how = difference(before->second, named.payload, config);
    if (how && different++ == 0) example = fmt::format("{} has {}", named.id, *how);
  }
  if (different == 0) return;
  throw CommandError(ExitCode::bad_input, "the baseline {} is of other problems: {} ({} of {} cases differ)",
                     baseline.name, example, different, common);
}

std::string left_unjudged(const PerfBaseline& baseline, std::span<const Item> cases) {
  std::size_t missing = 0;
  std::string example;
  for (const Item& named : cases) {
    if (!named.baseline_ms && missing++ == 0) example = named.id;
  }
  if (missing == 0) return "";
  if (missing == cases.size()) {
    throw CommandError(ExitCode::bad_input,
                       "the baseline {} has none of the cases, such as {}: --max-ratio has nothing to judge",
                       baseline.name, example);
  }
  return fmt::format("--max-ratio does not judge {} of {} cases: the baseline {} does not have them, such as {}",
                     missing, cases.size(), baseline.name, example);
}

void compare_with_baseline(const ExecutionOptions& options, std::vector<Item>& cases) {
  if (!options.baseline) return;
  const PerfBaseline baseline = read_perf_baseline(*options.baseline);
  compare_with(baseline, options.config, cases);
  const std::string unjudged = options.config.max_ratio ? left_unjudged(baseline, cases) : "";
  if (!unjudged.empty()) report_warning(unjudged);
}

CaseTrends read_case_trends(const std::vector<RunRecord>& records, const RunStarted& run, std::string_view before) {
  CaseTrends trends;
  std::size_t runs = 0;
  for (auto record = records.rbegin(); record != records.rend() && runs < kTrendRuns; ++record) {
    if (!before.empty() && record->id >= before) continue;
    try {
      const auto header = read_record_header(*record);
      if (!header || !is_like(run, *header) || writer_of(record->events())) continue;
      for (auto& [of_case, earlier] : cases_of(*record, *header)) trends[of_case].push_back(std::move(earlier));
      ++runs;
    } catch (const CommandError&) {
      continue;
    }
  }
  for (auto& [of_case, earlier] : trends) std::ranges::reverse(earlier);
  return trends;
}

void TrendSink::on_event(const Event& event) {
  if (const auto* header = std::get_if<RunStarted>(&event)) run_ = *header;
  const auto* finished = std::get_if<CaseFinished>(&event);
  const auto trend =
      finished == nullptr ? trends_.end() : trends_.find({finished->id, implementation_of(run_, *finished)});
  if (trend == trends_.end() || !finished->earlier.empty()) {
    next_.on_event(event);
    return;
  }
  CaseFinished with_trend = *finished;
  with_trend.earlier = trend->second;
  next_.on_event(with_trend);
}

CaseHistory case_history(const CaseTrends& trends, std::span<const Item> cases, const std::string& implementation) {
  CaseHistory history;
  for (const Item& named : cases) {
    const std::string own = implementation_of(named);
    const auto earlier = trends.find({named.id, own.empty() ? implementation : own});
    if (earlier == trends.end()) continue;
    if (!went_well(earlier->second.back().outcome)) history.failed.insert(named.id);
    history.duration_ms[named.id] = earlier->second.back().duration_ms;
  }
  return history;
}

void read_shard_times(SelectionOptions& options) {
  if (!options.shard_times || options.shard.count <= 1) return;
  options.times.ms = read_failed_cases(*options.shard_times).duration_ms;
  std::string text;
  for (const auto& [id, ms] : options.times.ms) text += fmt::format("{} {}\n", id, ms);
  options.times.hash = text_hash(text);
}

std::vector<std::size_t> ordered_by_history(std::span<const Item> cases, const CaseHistory& history) {
  using Group = std::pair<Place, std::size_t>;  // its least place and first listed case
  std::map<std::string, Group> groups;
  std::vector<Place> own;
  std::vector<const Group*> group_of;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    own.push_back(place_of(cases[i], history));
    Group& group = groups.try_emplace(cases[i].payload->group(), own.back(), i).first->second;
    group.first = std::min(group.first, own.back());
    group_of.push_back(&group);
  }
  std::vector<std::size_t> order(cases.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return group_of[a] == group_of[b] ? own[a] < own[b] : *group_of[a] < *group_of[b];
  });
  return order;
}

}  // namespace cp_pool
