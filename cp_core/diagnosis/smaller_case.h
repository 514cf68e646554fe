// A case with the features of another, small enough to be simulated densely many times.
#pragma once

#include <optional>

#include "cases/case.h"
#include "cases/lengths.h"

namespace cp_pool::diagnosis {

struct SizedCase {
  Case c;
  SequenceLengths lengths;
};

// Whether the case can be simulated as it is.
bool is_small(const Case& c, const SequenceLengths& lengths);

// With shorter sequences, windows and chunks that are shorter by as much, and fewer heads in as many blocks. nullopt:
// no such case is valid.
std::optional<SizedCase> smaller_case(const Case& c, const SequenceLengths& lengths);

}  // namespace cp_pool::diagnosis
