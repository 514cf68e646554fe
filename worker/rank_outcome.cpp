#include "worker/rank_outcome.h"

#include <utility>

namespace cp_pool {

void take_report(RankReport report, RankOutcome& outcome) {
  outcome.verdict = report.outcome;
  outcome.can_diagnose = report.judged != nullptr;
  for (Check& check : report.checks) check.rank = outcome.rank;
  report.timings_ms.merge(outcome.timings_ms);
  CaseReport& part = report;
  static_cast<CaseReport&>(outcome) = std::move(part);
}

}  // namespace cp_pool
