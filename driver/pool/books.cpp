#include "driver/pool/books.h"

#include <utility>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/pool/run_capsules.h"

namespace cp_pool {

CaseFinished finished_case(std::size_t index, const Item& named, CaseOutcome outcome, std::string reason) {
  CaseFinished out;
  out.index = index;
  out.id = named.id;
  out.number = named.number;
  out.run = named.run;
  out.runs = named.runs;
  out.search = named.search;
  out.expected = named.expected;
  out.implementation = implementation_of(named);
  out.payload = named.payload;
  out.outcome = outcome;
  out.reason = std::move(reason);
  out.rerun = named.rerun;
  return out;
}

void Books::finish(const Job& job, const Pool& pool, std::int64_t seq, Attempt attempt) {
  const bool counted = attempt.counted;
  CaseFinished out = ended_on(job, pool, seq, std::move(attempt));
  judge_bits(out);
  out.flaky = out.outcome == CaseOutcome::pass && job.tried > 0;
  enter(std::move(out), counted);
}

void Books::note_try(Job& job, const Pool& pool, std::int64_t seq, Attempt attempt) {
  ++job.tried;
  run_.emit(CaseTried{ended_on(job, pool, seq, std::move(attempt))});
}

void Books::note_unrun_try(Job& job, CaseOutcome outcome, std::string reason, std::vector<StderrTail> tails) {
  ++job.tried;
  CaseFinished out = begin(job, outcome, std::move(reason));
  out.stderr_tails = std::move(tails);
  run_.emit(CaseTried{std::move(out)});
}

CaseFinished Books::ended_on(const Job& job, const Pool& pool, std::int64_t seq, Attempt attempt) const {
  CaseFinished out = begin(job, attempt.outcome, std::move(attempt.reason));
  out.seq = seq;
  out.pool = pool.id();
  out.duration_ms = attempt.duration_ms;
  out.ranks = std::move(attempt.result.ranks);
  out.checks = std::move(attempt.result.checks);
  out.timings_ms = std::move(attempt.result.timings_ms);
  out.hygiene = std::move(attempt.result.hygiene);
  out.backend = std::move(attempt.result.backend);
  out.backend_note = std::move(attempt.result.backend_note);
  if (attempt.result.bound_factor != 1) out.bound_factor = attempt.result.bound_factor;
  if (const auto& perf = attempt.result.perf) {
    out.perf = out.payload->figures(*perf);
    out.perf->baseline_ms = job.named->baseline_ms;
  }
  out.diagnosis = std::move(attempt.diagnosis);
  out.shared_gpus = pool.shared_gpus();
  out.stderr_tails = std::move(attempt.stderr_tails);
  return out;
}

void Books::finish_unrun(const Job& job, CaseOutcome outcome, std::string reason, std::vector<StderrTail> tails) {
  CaseFinished out = begin(job, outcome, std::move(reason));
  out.stderr_tails = std::move(tails);
  enter(std::move(out), false);
}

CaseFinished Books::begin(const Job& job, CaseOutcome outcome, std::string reason) const {
  CaseFinished out = finished_case(job.index, *job.named, outcome, std::move(reason));
  out.attempts = job.attempts;
  out.dump_name = run_.output_names.own_name(job.index);
  return out;
}

// Turns a repeated pass into a fail if its outputs do not have the bits of the first pass, unless the case's kernels do
// not promise equal bits.
void Books::judge_bits(CaseFinished& finished) {
  if (!run_.config.compare_runs || finished.outcome != CaseOutcome::pass) return;
  finished.other_bits = run_.output_bits.other_ranks(finished);
  if (!finished.other_bits || finished.other_bits->empty() || !promises_bits(finished)) return;
  finished.outcome = CaseOutcome::fail;
  finished.reason = fmt::format("its outputs have other bits than those of its first run in this one, on rank {}",
                                fmt::join(*finished.other_bits, ", "));
}

void Books::enter(CaseFinished finished, bool counted) {
  const CaseOutcome outcome = finished.outcome;
  ledger_.record(finished.index, outcome, finished.flaky);
  ledger_.note_expected(finished);
  const bool failed = is_failure(finished);
  const bool has_history = run_.history && failed && is_failure(outcome) && finished.pool;
  if (has_history) run_.history->note_failure(finished);
  const Event event{std::move(finished)};
  run_.emit(event);
  if (has_history && run_.config.capsules) write_last_capsule(run_);
  if (failed && !counted) run_.count_failure();
  if (on_finished) on_finished(std::get<CaseFinished>(event));
}

}  // namespace cp_pool
