// A fixed list of cases for tests. Every deliberate fault of mutants.def makes at least one of them fail.
#pragma once

#include <vector>

#include "cases/case.h"

namespace cp_pool::verify::test {

// Small valid cases of 2 to 8 ranks: random ones that train, and rare ones.
std::vector<Case> witness_cases();

// Cases of 2 to 4 ranks with properties that random ones rarely have; valid on 4 ranks, too.
std::vector<Case> rare_cases();

}  // namespace cp_pool::verify::test
