// Where queries saw other keys than they should: counts, the largest rectangles, sentences.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cases/diagnosis.h"
#include "cp_core/diagnosis/probe_grid.h"
#include "cp_core/diagnosis/row_reading.h"
#include "cp_core/trial/judged_case.h"

namespace cp_pool::diagnosis {

// What a query saw of the keys, and what it should have.
struct SightPairs {
  const ProbeGrid& grid;
  const JudgedCase& judged;
  const at::Tensor& times;     // fp64 [q, kv], as SeenKeys::times
  const at::Tensor& expected;  // fp64 [q, kv]
  const std::vector<RowReading>& rows;
  bool has_lse = false;
  std::string prefix;  // of each sentence: "heads 2, 3: ", or empty
};

WrongPairs find_wrong_pairs(const SightPairs& pairs);

// What missing and excess pairs have in common.
std::vector<std::string> notes_on_pairs(const SightPairs& pairs);
// Weights that are no whole numbers or make no mean, and what lse says otherwise than out.
std::vector<std::string> notes_on_weights(const SightPairs& pairs);

}  // namespace cp_pool::diagnosis
