#include "cp_core/diagnosis/pair_blocks.h"

#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool::diagnosis {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

PairLabels labels_of(const std::vector<std::string>& rows) {
  PairLabels labels(static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows.front().size()));
  for (std::int64_t i = 0; i < labels.q; ++i) {
    for (std::int64_t j = 0; j < labels.kv; ++j) {
      const char sign = rows[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
      labels.at(i, j) = sign == ' ' ? 0 : sign - '0';
    }
  }
  return labels;
}

TEST(PairBlocks, AreTheLargestFirst) {
  EXPECT_THAT(largest_blocks(labels_of({"11  ",  //
                                        "11 2",  //
                                        "11 2"}),
                             8),
              ElementsAre(PairBlock{0, 2, 0, 1, 1}, PairBlock{1, 2, 3, 3, 2}));
}

TEST(PairBlocks, HaveOneLabel) {
  EXPECT_THAT(largest_blocks(labels_of({"112", "112"}), 8),
              ElementsAre(PairBlock{0, 1, 0, 1, 1}, PairBlock{0, 1, 2, 2, 2}));
}

TEST(PairBlocks, DoNotCrossBorders) {
  PairLabels labels = labels_of({"1111", "1111", "1111"});
  labels.q_border[1] = true;
  labels.kv_border[3] = true;
  EXPECT_THAT(largest_blocks(labels, 2), ElementsAre(PairBlock{1, 2, 0, 2, 1}, PairBlock{0, 0, 0, 2, 1}));
}

TEST(PairBlocks, AreNoMoreThanAskedFor) {
  EXPECT_THAT(largest_blocks(labels_of({"1 1", "   "}), 1), ElementsAre(PairBlock{0, 0, 0, 0, 1}));
  EXPECT_THAT(largest_blocks(labels_of({"   "}), 3), IsEmpty());
}

// Tries every rectangle. Returns the number of pairs of the largest one.
std::int64_t most_pairs(PairLabels& labels) {
  std::int64_t most = 0;
  for (std::int64_t top = 0; top < labels.q; ++top) {
    for (std::int64_t left = 0; left < labels.kv; ++left) {
      std::int64_t width = labels.kv - left;
      for (std::int64_t bottom = top; bottom < labels.q && width > 0; ++bottom) {
        if (bottom > top && labels.q_border[static_cast<std::size_t>(bottom)]) break;
        std::int64_t fits = 0;
        while (fits < width && labels.at(top, left) != 0 && labels.at(bottom, left + fits) == labels.at(top, left) &&
               (fits == 0 || !labels.kv_border[static_cast<std::size_t>(left + fits)])) {
          ++fits;
        }
        width = fits;
        most = std::max(most, width * (bottom - top + 1));
      }
    }
  }
  return most;
}

TEST(PairBlocks, AreAsLargeAsCanBe) {
  std::mt19937_64 generator(3);
  for (int trial = 0; trial < 300; ++trial) {
    PairLabels labels(static_cast<std::int64_t>(1 + generator() % 9), static_cast<std::int64_t>(1 + generator() % 9));
    for (std::int32_t& label : labels.labels) label = static_cast<std::int32_t>(generator() % 4 % 3);
    for (std::size_t i = 1; i < labels.q_border.size(); ++i) labels.q_border[i] = generator() % 5 == 0;
    for (std::size_t j = 1; j < labels.kv_border.size(); ++j) labels.kv_border[j] = generator() % 5 == 0;
    for (const PairBlock& block : largest_blocks(labels, 3)) {
      ASSERT_EQ(block.pairs(), most_pairs(labels));
      for (std::int64_t i = block.q_first; i <= block.q_last; ++i) {
        for (std::int64_t j = block.kv_first; j <= block.kv_last; ++j) {
          ASSERT_EQ(labels.at(i, j), block.label);
          labels.at(i, j) = 0;
        }
      }
    }
  }
}

}  // namespace
}  // namespace cp_pool::diagnosis
