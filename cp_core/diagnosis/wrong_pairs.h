// Describes where queries saw other keys than they should, in counts, rectangles and sentences.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cases/diagnosis.h"
#include "cp_core/diagnosis/probe_grid.h"
#include "cp_core/diagnosis/row_reading.h"

namespace cp_pool::diagnosis {

// The keys that queries saw, and those that they should have seen.
struct SightPairs {
  const ProbeGrid& grid;
  const at::Tensor& times;     // fp64 [q, kv], as SeenKeys::times
  const at::Tensor& expected;  // fp64 [q, kv]
  const std::vector<RowReading>& rows;
  bool has_lse = false;
  std::string prefix;  // put before each sentence: "heads 2, 3: ", or empty
};

WrongPairs find_wrong_pairs(const SightPairs& pairs);

// Reports weights that are no whole numbers or do not sum to 1, and where lse contradicts out.
std::vector<std::string> notes_on_weights(const SightPairs& pairs);

}  // namespace cp_pool::diagnosis
