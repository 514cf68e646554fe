#include "driver/cli/history/run_diff.h"

#include <cmath>

#include <fmt/format.h>

#include "driver/cli/history/merged_runs.h"
#include "driver/core/mapped.h"
#include "driver/report/case_text.h"

namespace cp_pool {
namespace {

// Ranks outcomes: a larger number is worse.
int badness(const CaseFinished& event) {
  if (is_failure(event)) return 3;
  if (!went_well(event)) return 2;
  return event.outcome == CaseOutcome::pass ? 0 : 1;
}

void add_pass(const CaseFinished& event, ComparedCase& into) {
  ++into.passed;
  into.ms = std::min(into.ms.value_or(event.duration_ms), event.duration_ms);
  if (event.perf && (!into.perf || event.perf->ms() < into.perf->ms())) into.perf = event.perf;
  for (const Check& check : event.checks) {
    if (!check.measured || !(check.bound > 0)) continue;
    double& share = into.share[check.tensor];
    share = std::max(share, check.error / check.bound);
  }
}

void add(const CaseFinished& event, ComparedCase& into) {
  const int bad = badness(event);
  if (bad > into.badness) {
    into.badness = bad;
    into.payload = event.payload;
    into.outcome = event.outcome;
    into.reason = passed_unexpectedly(event) ? expected_text(event) : event.reason;
  }
  into.flaky |= event.flaky;
  if (is_failure(event)) {
    ++into.failed;
  } else if (event.outcome == CaseOutcome::pass) {
    add_pass(event, into);
  } else if (event.outcome == CaseOutcome::skip) {
    ++into.skipped;
  } else if (!failed_as_expected(event)) {
    ++into.unjudged;
  }
}

// Thresholds for durations of whole cases.
constexpr double kLeastRatio = 1.5;
constexpr double kLeastDifferenceMs = 50;
constexpr double kDeviations = 5;              // of which a ratio may differ from the median
constexpr double kDeviationOfMedian = 1.4826;  // standard / median deviation of a normal distribution
constexpr std::size_t kLeastCases = 8;         // that are needed to estimate drift and deviation
// Threshold for steps of --mode perf, whose noise is the range of the timed steps.
constexpr double kLeastStepRatio = 1.05;
// Thresholds for errors.
constexpr double kLeastShare = 0.25;  // of the bound; smaller errors are ignored
constexpr double kLeastGrowth = 1.5;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

bool have_times_of_one_kind(const ComparedCase& a, const ComparedCase& b) {
  return a.perf && b.perf && a.perf->request.graph == b.perf->request.graph;
}

class Differ {
 public:
  Differ(const ComparedRun& before, const ComparedRun& after) : before_{before}, after_{after} {}

  RunDiff diff() {
    diff_.why_no_figures = why_no_figures();
    for (const auto& [id, now] : after_.cases) {
      const auto earlier = before_.cases.find(id);
      compare_outcomes(id, earlier == before_.cases.end() ? nullptr : &earlier->second, now);
    }
    for (const auto& [id, earlier] : before_.cases) {
      if (!after_.cases.contains(id)) add(ChangeKind::removed, id, &earlier, nullptr);
    }
    if (diff_.why_no_figures.empty()) {
      compare_durations();
      for_each_common_pass([&](const std::string& id, const ComparedCase& earlier, const ComparedCase& now) {
        compare_steps(id, earlier, now);
        compare_errors(id, earlier, now);
      });
    }
    std::ranges::stable_sort(diff_.changes, {}, &Change::kind);
    return std::move(diff_);
  }

 private:
  [[nodiscard]] std::string why_no_figures() const {
    const RunStarted& a = before_.header;
    const RunStarted& b = after_.header;
    if (a.size != b.size) return fmt::format("one run is of size {}, the other of size {}", a.size, b.size);
    if (a.device != b.device) return fmt::format("one run is on {}, the other on {}", a.device, b.device);
    return "";
  }

  Change& add(ChangeKind kind, const std::string& id, const ComparedCase* earlier, const ComparedCase* now) {
    Change change{.kind = kind, .id = id};
    if (earlier != nullptr) change.before = earlier->outcome;
    if (now != nullptr) {
      change.after = now->outcome;
      change.reason = now->reason;
      if (now->fails()) change.verdict = now->verdict;
    }
    diff_.changes.push_back(std::move(change));
    return diff_.changes.back();
  }

  void compare_outcomes(const std::string& id, const ComparedCase* earlier, const ComparedCase& now) {
    const bool failed = earlier != nullptr && earlier->fails();
    if (earlier != nullptr) {
      ++diff_.common;
      const bool alike = !now.implementation.empty() && now.implementation == earlier->implementation;
      diff_.not_alike += alike ? 0 : 1;
    }
    if (now.fails()) add(failed ? ChangeKind::still_failing : ChangeKind::new_failure, id, earlier, &now);
    if (now.flaky) add(ChangeKind::flaky, id, earlier, &now);
    if (earlier == nullptr) {
      add(ChangeKind::added, id, nullptr, &now);
      return;
    }
    if (failed && now.passes()) add(ChangeKind::fixed, id, earlier, &now);
    if (earlier->is_judged() && !now.is_judged()) add(ChangeKind::not_judged, id, earlier, &now);
    if (now.is_skipped() && !earlier->is_skipped()) add(ChangeKind::skip_came, id, earlier, &now);
    if (earlier->is_skipped() && !now.is_skipped() && now.is_judged()) {
      add(ChangeKind::skip_went, id, earlier, &now).reason = earlier->reason;
    }
  }

  template <typename Function>
  void for_each_common_pass(const Function& function) {
    for (const auto& [id, now] : after_.cases) {
      const auto earlier = before_.cases.find(id);
      if (earlier == before_.cases.end() || !earlier->second.passes() || !now.passes()) continue;
      if (earlier->second.payload == now.payload) function(id, earlier->second, now);
    }
  }

  void compare_durations() {
    std::vector<double> ratios;  // logarithms
    for_each_common_pass([&](const std::string&, const ComparedCase& earlier, const ComparedCase& now) {
      if (*earlier.ms > 0 && *now.ms > 0) ratios.push_back(std::log(*now.ms / *earlier.ms));
    });
    if (ratios.empty()) return;
    const double drift = median(ratios);
    double noise = std::log(kLeastRatio);
    double expected = 0;  // with few cases, a single change would look like drift
    if (ratios.size() >= kLeastCases) {
      const auto deviation = [drift](double ratio) { return std::abs(ratio - drift); };
      noise = std::max(noise, kDeviations * kDeviationOfMedian * median(mapped(ratios, deviation)));
      expected = drift;
    }
    diff_.drift = TimeDrift{.cases = ratios.size(), .ratio = std::exp(drift), .noise = std::exp(noise)};
    for_each_common_pass([&](const std::string& id, const ComparedCase& earlier, const ComparedCase& now) {
      if (have_times_of_one_kind(earlier, now) || *earlier.ms <= 0 || *now.ms <= 0) return;
      const double surplus = std::log(*now.ms / *earlier.ms) - expected;
      const double difference = *now.ms - *earlier.ms * std::exp(expected);
      if (std::abs(surplus) > noise && std::abs(difference) > kLeastDifferenceMs) {
        add_times(surplus > 0, id, earlier, now, *earlier.ms, *now.ms);
      }
    });
  }

  void compare_steps(const std::string& id, const ComparedCase& earlier, const ComparedCase& now) {
    if (!have_times_of_one_kind(earlier, now)) return;
    const auto& was = earlier.perf->step_ms;
    const auto& is = now.perf->step_ms;
    const bool slower = is.min > was.max && is.median >= kLeastStepRatio * was.median;
    const bool faster = is.max < was.min && was.median >= kLeastStepRatio * is.median;
    if (slower || faster) add_times(slower, id, earlier, now, was.median, is.median);
  }

  void add_times(bool slower, const std::string& id, const ComparedCase& earlier, const ComparedCase& now, double was,
                 double is) {
    Change& change = add(slower ? ChangeKind::slower : ChangeKind::faster, id, &earlier, &now);
    change.was = was;
    change.is = is;
  }

  // Adds a change for the tensor nearest to its bound, of those whose error grew.
  void compare_errors(const std::string& id, const ComparedCase& earlier, const ComparedCase& now) {
    auto grown = now.share.end();
    for (auto share = now.share.begin(); share != now.share.end(); ++share) {
      const auto was = earlier.share.find(share->first);
      if (was == earlier.share.end() || share->second < std::max(kLeastShare, kLeastGrowth * was->second)) continue;
      if (grown == now.share.end() || grown->second < share->second) grown = share;
    }
    if (grown == now.share.end()) return;
    Change& change = add(ChangeKind::error_grew, id, &earlier, &now);
    change.tensor = grown->first;
    change.was = earlier.share.at(grown->first);
    change.is = grown->second;
  }

  const ComparedRun& before_;
  const ComparedRun& after_;
  RunDiff diff_;
};

}  // namespace

ComparedRun compared_run(const std::vector<Event>& events) {
  ComparedRun run;
  run.header = std::get<RunStarted>(events.front());
  run.end = std::get<RunFinished>(events.back());
  for (const Event& event : events) {
    if (const auto* finished = std::get_if<CaseFinished>(&event)) {
      ComparedCase& of_case = run.cases[finished->id];
      add(*finished, of_case);
      of_case.implementation = implementation_of(run.header, *finished);
    }
    if (const auto* verdict = std::get_if<CaseVerdict>(&event)) {
      run.cases[verdict->id].verdict = name_of(verdict->verdict.kind);
    }
  }
  for (auto& [id, each] : run.cases) each.flaky |= each.passed > 0 && each.failed > 0;
  return run;
}

ComparedRun read_compared_run(const std::filesystem::path& events_file) {
  MergedRuns runs;
  const bool cut = !runs.read(events_file, "the run").back().end;
  ComparedRun run = compared_run(runs.finish({}));
  run.cut = cut;
  return run;
}

RunDiff diff_runs(const ComparedRun& before, const ComparedRun& after) {
  return Differ{before, after}.diff();
}

}  // namespace cp_pool
