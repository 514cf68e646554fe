// The pairs that were seen to meet, as a hypothesis: whether they alone explain all numbers.
#pragma once

#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/seen_keys.h"

namespace cp_pool::diagnosis {

// Empty where nothing wrong was seen, or what was seen is no mask.
Hypotheses seen_pairs_hypotheses(const SeenKeys& seen);

}  // namespace cp_pool::diagnosis
