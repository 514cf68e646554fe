// Gathers pairs of queries and keys that have the same label into rectangles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cp_pool::diagnosis {

// A label for each pair, row by row; 0 means no label.
struct PairLabels {
  std::int64_t q = 0;
  std::int64_t kv = 0;
  std::vector<std::int32_t> labels;
  // True for rows and columns that begin a section: a rectangle cannot extend into them from the row or column before.
  std::vector<bool> q_border;
  std::vector<bool> kv_border;

  PairLabels(std::int64_t queries, std::int64_t keys);
  std::int32_t& at(std::int64_t i, std::int64_t j) { return labels[static_cast<std::size_t>(i * kv + j)]; }
};

// A rectangle of pairs; both ends are included.
struct PairBlock {
  std::int64_t q_first = 0;
  std::int64_t q_last = -1;
  std::int64_t kv_first = 0;
  std::int64_t kv_last = -1;
  std::int32_t label = 0;

  [[nodiscard]] std::int64_t pairs() const { return (q_last - q_first + 1) * (kv_last - kv_first + 1); }
  bool operator==(const PairBlock&) const = default;
};

// Returns the largest rectangle of one label, then the largest one of the remaining pairs, and so on; at most `most`.
// Among equally large ones, the one that ends first comes first: by its last row, then by its last column.
std::vector<PairBlock> largest_blocks(PairLabels labels, std::size_t most);

}  // namespace cp_pool::diagnosis
