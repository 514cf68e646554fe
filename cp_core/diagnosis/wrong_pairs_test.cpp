#include "cp_core/diagnosis/wrong_pairs.h"

#include <random>

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/testing/cases_on_threads.h"

namespace cp_pool::diagnosis {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

PairLabels labels_of(const std::vector<std::string>& rows) {
  PairLabels labels{.q = static_cast<std::int64_t>(rows.size()), .kv = static_cast<std::int64_t>(rows.front().size())};
  for (std::int64_t i = 0; i < labels.q; ++i) {
    for (std::int64_t j = 0; j < labels.kv; ++j) {
      const char sign = rows[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
      labels.at(i, j) = sign == ' ' ? 0 : sign - '0';
    }
  }
  return labels;
}

auto is_block(RowSpan q, RowSpan kv, std::int64_t label) {
  return testing::Truly([=](const PairBlock& block) {
    return block.q.first == q.first && block.q.last == q.last && block.kv.first == kv.first &&
           block.kv.last == kv.last && block.label == label;
  });
}

TEST(PairBlocks, AreTheLargestFirst) {
  EXPECT_THAT(largest_blocks(labels_of({"11  ",  //
                                        "11 2",  //
                                        "11 2"}),
                             8),
              ElementsAre(is_block({0, 2}, {0, 1}, 1), is_block({1, 2}, {3, 3}, 2)));
}

TEST(PairBlocks, HaveOneLabel) {
  EXPECT_THAT(largest_blocks(labels_of({"112", "112"}), 8),
              ElementsAre(is_block({0, 1}, {0, 1}, 1), is_block({0, 1}, {2, 2}, 2)));
}

TEST(PairBlocks, AreNoMoreThanAskedFor) {
  EXPECT_THAT(largest_blocks(labels_of({"1 1", "   "}), 1), ElementsAre(is_block({0, 0}, {0, 0}, 1)));
  EXPECT_THAT(largest_blocks(labels_of({"   "}), 3), IsEmpty());
}

// Tries every rectangle. Returns the number of pairs of the largest one.
std::int64_t most_pairs(PairLabels& labels) {
  std::int64_t most = 0;
  for (std::int64_t top = 0; top < labels.q; ++top) {
    for (std::int64_t left = 0; left < labels.kv; ++left) {
      std::int64_t width = labels.kv - left;
      for (std::int64_t bottom = top; bottom < labels.q && width > 0; ++bottom) {
        std::int64_t fits = 0;
        while (fits < width && labels.at(top, left) != 0 && labels.at(bottom, left + fits) == labels.at(top, left)) {
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
    PairLabels labels{.q = static_cast<std::int64_t>(1 + generator() % 9),
                      .kv = static_cast<std::int64_t>(1 + generator() % 9)};
    for (std::int64_t& label : labels.labels) label = static_cast<std::int64_t>(generator() % 4 % 3);
    for (const PairBlock& block : largest_blocks(labels, 3)) {
      ASSERT_EQ(block.pairs(), most_pairs(labels));
      for (std::int64_t i = block.q.first; i <= block.q.last; ++i) {
        for (std::int64_t j = block.kv.first; j <= block.kv.last; ++j) {
          ASSERT_EQ(labels.at(i, j), block.label);
          labels.at(i, j) = 0;
        }
      }
    }
  }
}

// One sequence over two ranks. Nothing is seen, and nothing should be.
MaskPicture picture_of(std::int64_t tokens, const char* convention) {
  Case c = verify::test::small_case();
  c.batch = 1;
  c.seqlen_q = c.seqlen_kv = tokens;
  verify::Sharding sharding;
  sharding.rows = verify::parse_convention(convention).value();
  const ProbeGrid grid = make_grid(c, resolve_lengths(c), sharding, c.cp_size);
  const at::Tensor none = at::zeros({tokens, tokens}, at::kDouble);
  return draw_mask({.grid = grid, .times = none, .expected = none, .weighs = at::zeros({tokens}, at::kBool)});
}

TEST(MaskPicture, NamesAllRanksThatOwnRowsOfACell) {
  const MaskPicture picture = picture_of(2 * kMostCells, "striped");
  EXPECT_EQ(picture.q_per_cell, 2);
  EXPECT_THAT(picture.q_ranks, Each(0)) << "the owner of the first row";
  EXPECT_THAT(picture.q_owners, SizeIs(kMostCells));
  EXPECT_THAT(picture.q_owners, Each(ElementsAre(0, 1)));
  EXPECT_EQ(picture.kv_owners, picture.q_owners);
}

TEST(MaskPicture, NamesOneRankWhereCellsHaveOneOwner) {
  EXPECT_THAT(picture_of(8, "striped").q_owners, IsEmpty());
  EXPECT_THAT(picture_of(2 * kMostCells, "contiguous").q_owners, IsEmpty());
}

}  // namespace
}  // namespace cp_pool::diagnosis
