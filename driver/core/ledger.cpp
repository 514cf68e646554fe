#include "driver/core/ledger.h"

#include <algorithm>
#include <numeric>

#include "driver/core/exit_code.h"

namespace cp_pool {

namespace {

std::size_t sum(const OutcomeCounts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

}  // namespace

std::size_t Ledger::expect() {
  outcomes_.push_back(0);
  return outcomes_.size() - 1;
}

void Ledger::record(std::size_t index, CaseOutcome outcome, bool flaky) {
  flaky_ += flaky ? 1 : 0;
  ++counts_.at(static_cast<std::size_t>(outcome));
  if (index < outcomes_.size()) {
    ++outcomes_[index];
  } else {
    unknown_case_ = true;
  }
}

void Ledger::note_expected(const CaseFinished& finished) {
  expected_failures_ += failed_as_expected(finished) ? 1 : 0;
  unexpected_passes_ += passed_unexpectedly(finished) ? 1 : 0;
  strict_passes_ += passed_unexpectedly(finished) && finished.expected->strict ? 1 : 0;
  expected_skips_ += is_to_be_skipped(finished.expected) && finished.outcome == CaseOutcome::skip ? 1 : 0;
}

RunFinished Ledger::close(bool interrupted, const Demands& demands) const {
  RunFinished out;
  out.counts = counts_;
  out.flaky = flaky_;
  out.expected_failures = expected_failures_;
  out.unexpected_passes = unexpected_passes_;
  out.strict_passes = strict_passes_;
  out.expected_skips = expected_skips_;
  out.expanded = outcomes_.size();
  out.interrupted = interrupted;
  out.ledger_exact =
      !unknown_case_ && std::ranges::all_of(outcomes_, [](int n) { return n == 1; }) && sum(counts_) == out.expanded;
  out.exit_code = exit_code(out, demands);
  return out;
}

std::size_t unexpected_skips(const RunFinished& finished) {
  return finished.counts.at(static_cast<std::size_t>(CaseOutcome::skip)) - finished.expected_skips;
}

bool all_skipped(const RunFinished& finished) {
  return finished.expanded > 0 && finished.counts.at(static_cast<std::size_t>(CaseOutcome::skip)) == finished.expanded;
}

int exit_code(const RunFinished& finished, const Demands& demands) {
  const auto any = [&](auto pred) {
    for (std::size_t i = 0; i < kCaseOutcomes; ++i) {
      if (finished.counts.at(i) > 0 && pred(static_cast<CaseOutcome>(i))) return true;
    }
    return false;
  };
  if (finished.interrupted) return to_int(ExitCode::interrupted);
  if (!finished.ledger_exact || sum(finished.counts) != finished.expanded) return to_int(ExitCode::internal_error);
  std::size_t failures = finished.strict_passes;
  for (std::size_t i = 0; i < kCaseOutcomes; ++i) {
    if (is_failure(static_cast<CaseOutcome>(i))) failures += finished.counts.at(i);
  }
  if (failures > finished.expected_failures) return to_int(ExitCode::failed);
  if (any([](CaseOutcome o) { return o == CaseOutcome::not_run; })) return to_int(ExitCode::failed);
  if (demands.flaky_fails && finished.flaky > 0) return to_int(ExitCode::failed);
  if (demands.no_skip && unexpected_skips(finished) > 0) return to_int(ExitCode::infra);
  if (demands.some_judged && all_skipped(finished)) return to_int(ExitCode::infra);
  if (!finished.incomplete.empty() && !finished.partial) return to_int(ExitCode::infra);
  if (any([](CaseOutcome o) { return o == CaseOutcome::infra; })) return to_int(ExitCode::infra);
  return to_int(ExitCode::ok);
}

}  // namespace cp_pool
