// Summarises in a few sentences what many pairs have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/probe_grid.h"

namespace cp_pool::diagnosis {

using PairTest = std::function<bool(std::int64_t i, std::int64_t j)>;

// Names the ranks between which all expected pairs are missing: "the queries of rank 0 and the keys of ranks 1, 3".
// Empty if there is no such pair of ranks, or if every pair of ranks that expects pairs lacks all of them.
std::vector<std::string> ranks_apart(const ProbeGrid& grid, const PairTest& expected, const PairTest& missing);

// Says how far from the diagonal the pairs are: "at j - i' = 1", "at j - i' from -4 to -3". Empty if there is no pair,
// if a pair has padding or rows of two sequences, or if the distances span more than a few keys. lengths: those of the
// case, which define i' (docs/definitions.md).
std::string distance_text(const ProbeGrid& grid, const SequenceLengths& lengths, const PairTest& is_one);

}  // namespace cp_pool::diagnosis
