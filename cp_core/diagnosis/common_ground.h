// What wrong results have in common, where no known mistake explains them.
#pragma once

#include <string>
#include <vector>

#include "cp_core/diagnosis/bench.h"

namespace cp_pool::diagnosis {

// The smallest set of tensors, ranks, rows and heads that holds all that is wrong, as the end of a sentence: "dk and dv
// are wrong, on rank 1 only, in heads 0, 2 (every second)".
std::string common_ground(const Bench& bench);

// The same of each wrong tensor, as sentences.
std::vector<std::string> grounds_by_tensor(const Bench& bench);

}  // namespace cp_pool::diagnosis
