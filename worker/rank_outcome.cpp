#include "worker/rank_outcome.h"

namespace cp_pool {

void take_report(const RankReport& report, RankOutcome& outcome) {
  outcome.verdict = report.outcome;
  outcome.reason = report.reason;
  outcome.output_hash = report.output_hash;
  outcome.timings_ms.insert(report.timings_ms.begin(), report.timings_ms.end());
  outcome.remarks.assign(report.remarks.begin(), report.remarks.end());
  outcome.perf = report.perf;
  outcome.lost_outputs = report.lost_outputs;
  if (report.bound_factor != 1) outcome.bound_factor = report.bound_factor;
  outcome.can_diagnose = report.judged != nullptr;
  outcome.checks = report.checks;
  for (Check& check : outcome.checks) check.rank = outcome.rank;
}

}  // namespace cp_pool
