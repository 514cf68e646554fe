// What many pairs have in common, in few sentences.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/probe_grid.h"

namespace cp_pool::diagnosis {

using PairTest = std::function<bool(std::int64_t i, std::int64_t j)>;

// Between which ranks all pairs that are expected are missing: "rank 0's queries and the keys of ranks 1, 3". Empty if
// there is no such pair of ranks, or if it holds of all that expect any.
std::vector<std::string> ranks_apart(const ProbeGrid& grid, const PairTest& expected, const PairTest& missing);

// How far from the diagonal the pairs lie, if all are of one sequence each and lie within a few keys: "at j - i' = 1",
// "at j - i' from -4 to -3". Empty if they do not, or if there is none. lengths: of the case, by which i' is counted.
std::string distance_text(const ProbeGrid& grid, const SequenceLengths& lengths, const PairTest& is_one);

}  // namespace cp_pool::diagnosis
