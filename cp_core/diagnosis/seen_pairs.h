// Makes a hypothesis of the observed mask: that the keys which queries saw explain all wrong results.
#pragma once

#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/seen_keys.h"

namespace cp_pool::diagnosis {

// Empty if nothing wrong was seen, or if what was seen is no mask.
Hypotheses seen_pairs_hypotheses(const SeenKeys& seen);

}  // namespace cp_pool::diagnosis
