// Shows in which rows and heads the tensors of each rank were wrong.
#pragma once

#include <vector>

#include "cases/diagnosis.h"
#include "cp_core/diagnosis/bench.h"

namespace cp_pool::diagnosis {

// Returns one strip for each tensor of each rank that has a wrong row, rank by rank.
std::vector<ErrorStrip> error_strips(const Bench& bench);

}  // namespace cp_pool::diagnosis
