// Whether a case that did not pass is run once more (--retries, --retry-on).
#pragma once

#include <set>

#include "cases/case_outcome.h"

namespace cp_pool {

struct Retries {
  int most = 0;  // of a case
  // Never fail unless it is named: a wrong answer is one, however often it comes.
  std::set<CaseOutcome> on{CaseOutcome::crash, CaseOutcome::timeout, CaseOutcome::infra, CaseOutcome::error};

  // made: how many the case has had.
  [[nodiscard]] bool allow(CaseOutcome outcome, int made) const { return made < most && on.contains(outcome); }
};

}  // namespace cp_pool
