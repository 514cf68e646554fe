#include "driver/core/ledger.h"

#include <algorithm>
#include <numeric>

#include "driver/core/exit_code.h"

namespace cp_pool {

static std::size_t number_of(const RunFinished& finished, CaseOutcome outcome) {
  return finished.counts.at(static_cast<std::size_t>(outcome));
}

std::size_t total_of(const OutcomeCounts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

std::size_t Ledger::expect() {
  outcomes_.push_back(0);
  return outcomes_.size() - 1;
}

void Ledger::record(std::size_t index, CaseOutcome outcome, bool flaky) {
  so_far_.flaky += flaky ? 1 : 0;
  ++so_far_.counts.at(static_cast<std::size_t>(outcome));
  if (index < outcomes_.size()) {
    ++outcomes_[index];
  } else {
    unknown_case_ = true;
  }
}

void Ledger::note_expected(const CaseFinished& finished) {
  so_far_.expected_failures += failed_as_expected(finished) ? 1 : 0;
  so_far_.unexpected_passes += passed_unexpectedly(finished) ? 1 : 0;
  so_far_.strict_passes += passed_unexpectedly(finished) && finished.expected->strict ? 1 : 0;
  so_far_.expected_skips += is_to_be_skipped(finished.expected) && finished.outcome == CaseOutcome::skip ? 1 : 0;
}

RunFinished Ledger::close(bool interrupted, const Demands& demands) const {
  RunFinished out = so_far_;
  out.expanded = outcomes_.size();
  out.interrupted = interrupted;
  out.ledger_exact = !unknown_case_ && std::ranges::all_of(outcomes_, [](int n) { return n == 1; }) &&
                     total_of(out.counts) == out.expanded;
  out.exit_code = exit_code(out, demands);
  return out;
}

std::size_t unexpected_skips(const RunFinished& finished) {
  return number_of(finished, CaseOutcome::skip) - finished.expected_skips;
}

bool all_skipped(const RunFinished& finished) {
  return finished.expanded > 0 && number_of(finished, CaseOutcome::skip) == finished.expanded;
}

int exit_code(const RunFinished& finished, const Demands& demands) {
  if (finished.interrupted) return to_int(ExitCode::interrupted);
  if (!finished.ledger_exact || total_of(finished.counts) != finished.expanded) return to_int(ExitCode::internal_error);
  std::size_t failures = finished.strict_passes;
  for (const CaseOutcome outcome : kValues<CaseOutcome>) {
    if (is_failure(outcome)) failures += number_of(finished, outcome);
  }
  if (failures > finished.expected_failures) return to_int(ExitCode::failed);
  if (number_of(finished, CaseOutcome::not_run) > 0) return to_int(ExitCode::failed);
  if (demands.flaky_fails && finished.flaky > 0) return to_int(ExitCode::failed);
  if (demands.no_skip && unexpected_skips(finished) > 0) return to_int(ExitCode::infra);
  if (demands.some_judged && all_skipped(finished)) return to_int(ExitCode::infra);
  if (!finished.incomplete.empty() && !finished.partial) return to_int(ExitCode::infra);
  if (number_of(finished, CaseOutcome::infra) > 0) return to_int(ExitCode::infra);
  return to_int(ExitCode::ok);
}

}  // namespace cp_pool
