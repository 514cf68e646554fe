// The fixed list of cases that see every deliberate fault of mutants.def, for tests.
#pragma once

#include <vector>

#include "cases/case.h"

namespace cp_pool::verify::test {

// Small valid training cases of 2 to 8 ranks: random ones, and what these seldom are.
std::vector<Case> witness_cases();

}  // namespace cp_pool::verify::test
