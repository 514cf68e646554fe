#include "cp_core/partition.h"

#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/layout.h"

namespace cp_pool {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr auto run(std::int64_t sequence, std::int64_t begin, std::int64_t end, std::int64_t row) {
  return Run{.sequence = sequence, .begin = begin, .end = end, .row = row};
}

TEST(Partition, GivesARankItsChunkAndTheMirroredOneOfEverySequence) {
  EXPECT_THAT(local_runs({16, 0, 8}, 2, 0),
              ElementsAre(run(0, 0, 4, 0), run(0, 12, 16, 4), run(2, 0, 2, 8), run(2, 6, 8, 10)));
}

TEST(Partition, JoinsTheChunksOfTheLastRank) {
  EXPECT_THAT(local_runs({16}, 2, 1), ElementsAre(run(0, 4, 12, 0)));
  EXPECT_THAT(local_runs({16}, 1, 0), ElementsAre(run(0, 0, 16, 0)));
}

TEST(Partition, SplitsARankInHalvesAtItsOwnRows) {
  EXPECT_THAT(local_half_runs({16, 8}, 2, 1, 0), ElementsAre(run(0, 4, 8, 0), run(1, 2, 4, 8)));
  EXPECT_THAT(local_half_runs({16, 8}, 2, 1, 1), ElementsAre(run(0, 8, 12, 4), run(1, 4, 6, 10)));
}

TEST(Partition, PutsThePairOfAnyTwoLevelsOnTheChunksOfHalfAsManyRanks) {
  const std::vector<std::int64_t> padded{32, 16};
  for (int pair = 0; pair < 2; ++pair) {
    const auto of_ranks = gathered_runs(padded, 4, 2 * pair, 2);
    const auto of_pair = local_runs(padded, 2, pair);
    EXPECT_EQ(total_rows(of_ranks), total_rows(of_pair));
    std::int64_t copied = 0;
    for (const RowCopy& copy : row_copies(of_ranks, of_pair)) copied += copy.count;
    EXPECT_EQ(copied, total_rows(of_pair));
  }
}

TEST(RowCopies, BringGatheredRowsIntoSequenceOrder) {
  EXPECT_THAT(row_copies(gathered_runs({8}, 2, 0, 2), whole_runs({8})),
              ElementsAre(RowCopy{.source = 0, .target = 0, .count = 2}, RowCopy{.source = 4, .target = 2, .count = 4},
                          RowCopy{.source = 2, .target = 6, .count = 2}));
  EXPECT_THAT(row_copies(gathered_runs({0}, 2, 0, 2), whole_runs({0})), IsEmpty());
}

TEST(RowCopies, RefuseASourceThatLacksAPosition) {
  EXPECT_THROW(row_copies(local_runs({8}, 2, 0), whole_runs({8})), std::invalid_argument);
}

TEST(RowCopies, OfARankAreCutAtItsRows) {
  const std::vector<RowCopy> copies{{.source = 0, .target = 0, .count = 2},
                                    {.source = 4, .target = 2, .count = 3},
                                    {.source = 2, .target = 5, .count = 2}};
  EXPECT_THAT(copies_of_rank(copies, 0, 6),
              ElementsAre(RowCopy{.source = 0, .target = 0, .count = 2}, RowCopy{.source = 4, .target = 2, .count = 2},
                          RowCopy{.source = 2, .target = 5, .count = 2}));
  EXPECT_THAT(copies_of_rank(copies, 1, 6), ElementsAre(RowCopy{.source = 0, .target = 4, .count = 1}));
}

TEST(ValidRows, EndAtTheValidLengthOfEachSequence) {
  EXPECT_THAT(
      valid_rows(local_runs({16, 16}, 2, 0), {14, 3}),
      ElementsAre(RowRange{.row = 0, .count = 4}, RowRange{.row = 4, .count = 2}, RowRange{.row = 8, .count = 3}));
}

}  // namespace
}  // namespace cp_pool
