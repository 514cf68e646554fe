// Shrinks a case, keeping its features, until it is small enough to be simulated densely many times.
#pragma once

#include <optional>

#include "cases/case.h"
#include "cases/lengths.h"

namespace cp_pool::diagnosis {

struct SizedCase {
  Case c;
  SequenceLengths lengths;
};

// Whether the case is small enough as it is.
bool is_small(const Case& c, const SequenceLengths& lengths);

// Returns the case with shorter sequences, windows and chunks shortened by the same factor, and fewer heads in as many
// blocks. nullopt: no such case is valid.
std::optional<SizedCase> smaller_case(const Case& c, const SequenceLengths& lengths);

}  // namespace cp_pool::diagnosis
