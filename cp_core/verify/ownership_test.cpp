#include "cp_core/verify/ownership.h"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool::verify {
namespace {

using testing::ElementsAre;

const std::vector<std::int64_t> kLengths{3, 2};

std::string fault_of(const std::vector<std::vector<std::int64_t>>& canonical, Layout layout = Layout::thd) {
  RowsByRank by_rank;
  for (const auto& rows : canonical) by_rank.push_back(local_rows(rows, kLengths));
  return ownership_fault(by_rank, kLengths, layout, "q");
}

TEST(Ownership, IsFineIfEveryValidRowHasOneOwner) {
  EXPECT_EQ(fault_of({{0, 4, -1}, {1, 2, 3}}), "");
}

TEST(Ownership, NamesTheRowThatNobodyOwns) {
  EXPECT_EQ(fault_of({{0, 1}, {2, 4}}), "no rank owns row 3 of q (sequence 1, position 0)");
}

TEST(Ownership, NamesTheRanksThatOwnARowBoth) {
  EXPECT_EQ(fault_of({{0, 1, 2}, {2, 3, 4}}), "ranks 0 and 1 both own row 2 of q (sequence 0, position 2)");
}

TEST(Ownership, NamesTheRankThatOwnsARowTwice) {
  EXPECT_EQ(fault_of({{0, 1, 1, 2}, {3, 4}}), "rank 0 owns row 1 of q (sequence 0, position 1) twice");
}

TEST(Ownership, NeedsRectanglesInBshdAndSbhd) {
  for (const Layout layout : {Layout::bshd, Layout::sbhd}) {
    EXPECT_THAT(fault_of({{0, 1, 3}, {2, 4}}, layout),
                testing::HasSubstr("rank 0 does not hold equally many rows of q"));
    EXPECT_EQ(fault_of({{0, 1, 3, -1}, {2, -1, 4, -1}}, layout), "");
  }
}

TEST(Ownership, OfListedRowsKnowsSequenceAndPosition) {
  EXPECT_THAT(local_rows({1, -1, 3}, kLengths), ElementsAre(LocalRow{0, 1, 1}, LocalRow{0, -1, -1}, LocalRow{1, 0, 3}));
}

TEST(Ownership, RefusesARowThatThereIsNot) {
  EXPECT_THROW((void)local_rows({5}, kLengths), std::out_of_range);
  EXPECT_THROW((void)local_rows({-2}, kLengths), std::out_of_range);
}

// Rows of sequences that are empty belong to none.
TEST(Ownership, PassesOverEmptySequences) {
  EXPECT_THAT(local_rows({0}, {0, 1}), ElementsAre(LocalRow{1, 0, 0}));
}

}  // namespace
}  // namespace cp_pool::verify
