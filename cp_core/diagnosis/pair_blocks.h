// Pairs of queries and keys that have something in common, gathered into rectangles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cp_pool::diagnosis {

// A label for each pair, row by row; 0: none.
struct PairLabels {
  std::int64_t q = 0;
  std::int64_t kv = 0;
  std::vector<std::int32_t> labels;
  // A rectangle does not go on from the row or column before into one that is a border.
  std::vector<bool> q_border;
  std::vector<bool> kv_border;

  PairLabels(std::int64_t queries, std::int64_t keys);
  std::int32_t& at(std::int64_t i, std::int64_t j) { return labels[static_cast<std::size_t>(i * kv + j)]; }
};

// Both ends included.
struct PairBlock {
  std::int64_t q_first = 0;
  std::int64_t q_last = -1;
  std::int64_t kv_first = 0;
  std::int64_t kv_last = -1;
  std::int32_t label = 0;

  [[nodiscard]] std::int64_t pairs() const { return (q_last - q_first + 1) * (kv_last - kv_first + 1); }
  bool operator==(const PairBlock&) const = default;
};

// The largest rectangle of one label, then the largest of what is left, and so on, at most `most`. Of equally large
// ones the one that ends first, downwards and then to the right.
std::vector<PairBlock> largest_blocks(PairLabels labels, std::size_t most);

}  // namespace cp_pool::diagnosis
