#include "cp_core/verify/ownership.h"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool::verify {
namespace {

using testing::ElementsAre;

const std::vector<std::int64_t> kLengths{3, 2};

std::string fault_of(const std::vector<std::vector<std::int64_t>>& canonical, Layout layout = Layout::thd,
                     std::int64_t replicated = 0) {
  RowsByRank by_rank;
  for (const auto& rows : canonical) by_rank.push_back(local_rows(rows, kLengths));
  return ownership_fault(by_rank, kLengths, layout, "q", replicated);
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

TEST(Ownership, OfReplicatedRowsIsThatOfEveryRank) {
  const auto fault_with_one_replicated = [](const std::vector<std::vector<std::int64_t>>& canonical) {
    return fault_of(canonical, Layout::thd, 1);
  };
  EXPECT_EQ(fault_with_one_replicated({{0, 1, 3}, {0, 2, 3, 4}}), "");
  EXPECT_EQ(fault_with_one_replicated({{3, 4, 0}, {1, 2, 0, 3}, {3, 0}}), "") << "in any place of a rank";
  const char* const first = " lacks row 0 of q (sequence 0, position 0), which is replicated: every rank holds it";
  EXPECT_EQ(fault_with_one_replicated({{0, 1, 3}, {2, 3, 4}}), std::string("rank 1") + first);
  EXPECT_EQ(fault_with_one_replicated({{1, 3}, {0, 2, 3, 4}}), std::string("rank 0") + first);
  EXPECT_EQ(fault_with_one_replicated({{0, 1, 3}, {2, 3, 4}, {0, 3}}), std::string("rank 1") + first);
  EXPECT_EQ(fault_with_one_replicated({{1, 3}, {2, 3, 4}}), std::string("rank 0") + first);
  EXPECT_EQ(fault_with_one_replicated({{0, 1, 3}, {0, 2, 3, 0, 4}}),
            "rank 1 owns row 0 of q (sequence 0, position 0) twice");
  EXPECT_EQ(fault_with_one_replicated({{0, 1, 3}, {0, 1, 2, 3, 4}}),
            "ranks 0 and 1 both own row 1 of q (sequence 0, position 1)");
  EXPECT_EQ(fault_of({{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}}, Layout::thd, 9), "") << "more than any sequence has";
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

// No row belongs to an empty sequence.
TEST(Ownership, PassesOverEmptySequences) {
  EXPECT_THAT(local_rows({0}, {0, 1}), ElementsAre(LocalRow{1, 0, 0}));
}

}  // namespace
}  // namespace cp_pool::verify
