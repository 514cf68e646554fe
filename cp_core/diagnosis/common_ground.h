// Summarises where results are wrong.
#pragma once

#include <string>
#include <vector>

#include "cases/diagnosis.h"
#include "cp_core/diagnosis/bench.h"

namespace cp_pool::diagnosis {

// Names for each wrong result the smallest set of ranks, heads and rows that contains every wrong value, as a sentence
// in which results with the same set stand together: "dk, dv are wrong, on rank 1 only, in heads 0, 2 (every second)".
std::string common_ground(const Bench& bench);

// Returns one strip for each tensor of each rank that has a wrong row, rank by rank.
std::vector<ErrorStrip> error_strips(const Bench& bench);

}  // namespace cp_pool::diagnosis
