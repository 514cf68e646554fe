#include "cp_core/diagnosis/pair_blocks.h"

#include <algorithm>

namespace cp_pool::diagnosis {
namespace {

// Finds the largest rectangle in one pass over the rows. Each pair of a row is the foot of a bar of pairs with the same
// label above it. A rectangle that ends in this row spans adjacent bars and is as high as the lowest of them.
class BlockSearch {
 public:
  explicit BlockSearch(PairLabels& labels) : labels_(labels), heights_(static_cast<std::size_t>(labels.kv), 0) {}

  PairBlock largest() {
    for (std::int64_t i = 0; i < labels_.q; ++i) {
      raise_bars(i);
      scan(i);
    }
    return best_;
  }

 private:
  struct Bar {
    std::int64_t first;  // the first column of the run of bars that are at least this high
    std::int64_t height;
  };

  void raise_bars(std::int64_t i) {
    for (std::int64_t j = 0; j < labels_.kv; ++j) {
      const std::int32_t label = labels_.at(i, j);
      const bool goes_on = i > 0 && !labels_.q_border[static_cast<std::size_t>(i)] && labels_.at(i - 1, j) == label;
      std::int64_t& height = heights_[static_cast<std::size_t>(j)];
      height = label == 0 ? 0 : goes_on ? height + 1 : 1;
    }
  }

  void scan(std::int64_t i) {
    std::int32_t label = 0;
    for (std::int64_t j = 0; j < labels_.kv; ++j) {
      if (labels_.at(i, j) != label || labels_.kv_border[static_cast<std::size_t>(j)]) (void)lower(i, j, 0);
      label = labels_.at(i, j);
      if (label == 0) continue;
      const std::int64_t height = heights_[static_cast<std::size_t>(j)];
      const std::int64_t first = lower(i, j, height);
      if (bars_.empty() || bars_.back().height < height) bars_.push_back({first, height});
    }
    (void)lower(i, labels_.kv, 0);
  }

  // Ends the rectangles before column j that are higher than `height`. Returns the first column from which on bars are
  // at least `height` high.
  std::int64_t lower(std::int64_t i, std::int64_t j, std::int64_t height) {
    std::int64_t first = j;
    while (!bars_.empty() && bars_.back().height > height) {
      first = bars_.back().first;
      const PairBlock block{.q_first = i - bars_.back().height + 1,
                            .q_last = i,
                            .kv_first = first,
                            .kv_last = j - 1,
                            .label = labels_.at(i, first)};
      if (block.pairs() > best_.pairs()) best_ = block;
      bars_.pop_back();
    }
    return first;
  }

  PairLabels& labels_;
  std::vector<std::int64_t> heights_;
  std::vector<Bar> bars_;  // bars of the current label, ascending in height
  PairBlock best_;
};

}  // namespace

PairLabels::PairLabels(std::int64_t queries, std::int64_t keys)
    : q(queries),
      kv(keys),
      labels(static_cast<std::size_t>(queries * keys), 0),
      q_border(static_cast<std::size_t>(queries), false),
      kv_border(static_cast<std::size_t>(keys), false) {}

std::vector<PairBlock> largest_blocks(PairLabels labels, std::size_t most) {
  std::vector<PairBlock> blocks;
  while (blocks.size() < most) {
    const PairBlock block = BlockSearch(labels).largest();
    if (block.label == 0) break;
    for (std::int64_t i = block.q_first; i <= block.q_last; ++i) {
      for (std::int64_t j = block.kv_first; j <= block.kv_last; ++j) labels.at(i, j) = 0;
    }
    blocks.push_back(block);
  }
  return blocks;
}

}  // namespace cp_pool::diagnosis
