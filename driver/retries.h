// Decides whether a case that did not pass is run once more (--retries, --retry-on).
#pragma once

#include <set>

#include "cases/case_outcome.h"

namespace cp_pool {

struct Retries {
  int most = 0;  // retries of one case
  // Outcomes that are retried. `fail` is among them only if the user names it: one wrong answer is enough, however
  // often others are right.
  std::set<CaseOutcome> on{CaseOutcome::crash, CaseOutcome::timeout, CaseOutcome::infra, CaseOutcome::error};

  // made: number of retries that the case has had.
  [[nodiscard]] bool allow(CaseOutcome outcome, int made) const { return made < most && on.contains(outcome); }
};

}  // namespace cp_pool
