#include "worker/rank_outcome.h"

namespace cp_pool {

namespace {

protocol::TensorCheck to_tensor_check(const Check& check, int rank) {
  return {check.tensor, rank,           check.max_abs,     check.rms, check.error,
          check.bound,  check.baseline, check.worst_index, check.ok,  check.message};
}

Verdict to_verdict(RankReport::Outcome outcome) {
  switch (outcome) {
    case RankReport::Outcome::pass:
      return Verdict::pass;
    case RankReport::Outcome::skip:
      return Verdict::skip;
    case RankReport::Outcome::fail:
      break;
  }
  return Verdict::fail;
}

}  // namespace

void take_report(const RankReport& report, RankOutcome& outcome) {
  outcome.verdict = to_verdict(report.outcome);
  outcome.reason = report.reason;
  outcome.output_hash = report.output_hash;
  outcome.timings_ms.insert(report.timings_ms.begin(), report.timings_ms.end());
  outcome.remarks.assign(report.remarks.begin(), report.remarks.end());
  if (report.perf) {
    outcome.perf = {report.perf->step_ms, report.perf->one_rank_ms, report.perf->one_rank_reason,
                    report.perf->bytes_sent};
  }
  for (const LostOutput& lost : report.lost_outputs) outcome.lost_outputs.push_back({lost.output, lost.message});
  for (const Check& check : report.checks) outcome.checks.push_back(to_tensor_check(check, outcome.rank));
}

}  // namespace cp_pool
