// Finds out whether the same step gives the same results again, and whether results are left over from an earlier step.
#pragma once

#include <string>

#include "cp_core/diagnosis/bench.h"
#include "cp_core/diagnosis/observation.h"

namespace cp_pool::diagnosis {

struct Repetition {
  bool same_bits = true;
  std::string says;  // "the same step gave different results in 1 of 3 runs"
};

// Compares all observed runs that have the same case and seed.
Repetition repetition_of(const Observed& observed);

// Returns a sentence if the wrong results of the step `other_seed` are those of the step before it, or have those added
// to them; else an empty string. again: the step before.
std::string stale_results(const Bench& again, const Bench& other_seed);

}  // namespace cp_pool::diagnosis
