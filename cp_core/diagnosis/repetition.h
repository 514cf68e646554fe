// What the same step gives when it is taken again, and what is left over from a step before.
#pragma once

#include <string>

#include "cp_core/diagnosis/bench.h"
#include "cp_core/diagnosis/explanation.h"

namespace cp_pool::diagnosis {

struct Repetition {
  bool same_bits = true;
  std::string says;  // "the same step gave other results in 1 of 3 runs"
};

// Of the runs of one case with one seed that were seen.
Repetition repetition_of(const Observed& observed);

// Why the results of `other_seed` that are wrong are those of the step before, as a sentence; empty if they are not.
// again: the step before it.
std::string stale_results(const Observed& observed, const Bench& again, const Bench& other_seed);

}  // namespace cp_pool::diagnosis
