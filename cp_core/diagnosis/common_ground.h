// Summarises what the wrong results have in common if no known mistake explains them.
#pragma once

#include <string>
#include <vector>

#include "cp_core/diagnosis/bench.h"

namespace cp_pool::diagnosis {

// Names the smallest set of tensors, ranks, rows and heads that contains every wrong value, as a sentence: "dk and dv
// are wrong, on rank 1 only, in heads 0, 2 (every second)".
std::string common_ground(const Bench& bench);

// The same for each wrong tensor by itself, one sentence per tensor.
std::vector<std::string> grounds_by_tensor(const Bench& bench);

}  // namespace cp_pool::diagnosis
