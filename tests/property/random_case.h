// Random small cases over every field of Case, for tests that hold for all of them.
#pragma once

#include <random>

#include "cases/case.h"

namespace cp_pool::property {

// A valid case that runs in milliseconds; the same on every machine for the same state of the generator. a2a and
// a2a+p2p get heads that divide over their ranks, so that nothing is skipped.
Case random_case(std::mt19937_64& generator);

}  // namespace cp_pool::property
