#include <utility>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/pool/fleet.h"

namespace cp_pool {

void StartBackoff::note_failed_start(const StartFailure& failure) {
  if (given_up_) return;  // several pools that start at the same time fail for one reason
  ++failed_starts_;
  const std::string& why = failure.retirement.detail;
  if (failure.skip) {
    given_up_ = {.reason = why, .outcome = CaseOutcome::skip, .tails = failure.stderr_tails};
  } else if (failure.permanent || failed_starts_ == config_.max_failed_starts) {
    const std::string times = failure.permanent || config_.max_failed_starts == 1
                                  ? "cannot start"
                                  : fmt::format("failed to start {} times running", failed_starts_);
    given_up_ = {.reason = fmt::format("the pool {}: {}", times, why),
                 .tails = failure.stderr_tails,
                 .another_start_may_help = !failure.permanent};
  }
}

void StartBackoff::note_outcome(CaseOutcome outcome) {
  timeouts_ = outcome == CaseOutcome::timeout ? timeouts_ + 1 : 0;
  const int limit = config_.max_consecutive_timeouts;
  if (limit <= 0 || timeouts_ < limit || given_up_) return;
  given_up_ = {.reason = fmt::format("{} cases running timed out (--max-consecutive-timeouts)", timeouts_)};
}

CaseFinished finished_case(std::size_t index, const Item& named, CaseOutcome outcome, std::string reason) {
  CaseFinished out;
  static_cast<NamedCase&>(out) = named;
  out.index = index;
  out.implementation = implementation_of(named);
  out.outcome = outcome;
  out.reason = std::move(reason);
  return out;
}

CaseFinished FleetClient::ended_on(const Job& job, const Pool& pool, std::int64_t seq, Conclusion conclusion) const {
  CaseFinished out = unrun(job, conclusion.outcome, std::move(conclusion.reason), std::move(conclusion.stderr_tails));
  out.seq = seq;
  out.pool = pool.id();
  out.duration_ms = conclusion.duration_ms;
  out.ranks = std::move(conclusion.result.ranks);
  out.checks = std::move(conclusion.result.checks);
  out.timings_ms = std::move(conclusion.result.timings_ms);
  out.hygiene = std::move(conclusion.result.hygiene);
  out.backend = std::move(conclusion.result.backend);
  out.backend_note = std::move(conclusion.result.backend_note);
  out.value = std::move(conclusion.result.value);
  if (conclusion.result.bound_factor != 1) out.bound_factor = conclusion.result.bound_factor;
  if (const auto& perf = conclusion.result.perf) {
    out.perf = out.payload->figures(*perf);
    out.perf->baseline_ms = job.named.baseline_ms;
  }
  out.diagnosis = std::move(conclusion.diagnosis);
  out.shared_gpus = pool.shared_gpus();
  return out;
}

CaseFinished FleetClient::unrun(const Job& job, CaseOutcome outcome, std::string reason,
                                std::vector<StderrTail> tails) const {
  CaseFinished out = finished_case(job.index, job.named, outcome, std::move(reason));
  out.attempts = job.attempts;
  out.dump_name = run.output_names.own_name(job.index);
  out.stderr_tails = std::move(tails);
  return out;
}

void FleetClient::note_try(Job& job, CaseFinished end) {
  ++job.tried;
  run.emit(CaseTried{std::move(end)});
}

// Turns a repeated pass into a fail if its outputs do not have the bits of the first pass, unless the case's kernels do
// not promise equal bits.
void FleetClient::judge_bits(CaseFinished& finished) {
  if (!run.config.compare_runs || finished.outcome != CaseOutcome::pass) return;
  finished.other_bits = run.output_bits.other_ranks(finished);
  if (!finished.other_bits || finished.other_bits->empty() || !promises_bits(finished)) return;
  finished.outcome = CaseOutcome::fail;
  finished.reason = fmt::format("its outputs have other bits than those of its first run in this one, on rank {}",
                                fmt::join(*finished.other_bits, ", "));
}

void FleetClient::finish(const Job& job, CaseFinished end, bool counted) {
  judge_bits(end);
  const CaseOutcome outcome = end.outcome;
  end.flaky = outcome == CaseOutcome::pass && job.tried > 0;
  ledger.record(end.index, outcome, end.flaky);
  ledger.note_expected(end);
  const bool failed = is_failure(end);
  const bool has_history = run.history && failed && is_failure(outcome) && end.pool;
  if (has_history) run.history->note_failure(end);
  const Event event{std::move(end)};
  run.emit(event);
  if (has_history && run.config.capsules) run.write_capsule(run.history->failures().back());
  if (failed && !counted) run.count_failure();
  if (on_finished) on_finished(std::get<CaseFinished>(event));
}

}  // namespace cp_pool
