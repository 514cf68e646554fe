// A fixed list of cases for tests. Every deliberate fault of mutants.def makes at least one of them fail.
#pragma once

#include <vector>

#include "cases/case.h"

namespace cp_pool::verify::test {

// Small valid training cases of 2 to 8 ranks: random ones, and ones with properties that random ones rarely have.
std::vector<Case> witness_cases();

}  // namespace cp_pool::verify::test
