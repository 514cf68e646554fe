#include "cp_core/verify/conventions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool::verify {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Returns the canonical rows that a rank holds of sequences without padding.
std::vector<std::int64_t> rows_of(const char* convention, const std::vector<std::int64_t>& lengths, int ranks, int rank,
                                  Layout layout = Layout::thd) {
  const auto by_rank = rows_by_convention(parse_convention(convention).value(), layout, lengths, lengths, ranks);
  std::vector<std::int64_t> rows;
  for (const LocalRow& row : by_rank.at(static_cast<std::size_t>(rank))) rows.push_back(row.canonical);
  return rows;
}

std::string obstacle(const char* convention, const std::vector<std::int64_t>& lengths, int ranks) {
  return convention_obstacle(parse_convention(convention).value(), Layout::thd, lengths, lengths, ranks);
}

// The same as rows_of for 2 ranks, if the first `replicated` rows of each sequence are on every rank.
std::vector<std::int64_t> rows_behind_replicated(std::int64_t replicated, const char* convention,
                                                 const std::vector<std::int64_t>& lengths, int rank) {
  const auto by_rank =
      rows_by_convention(parse_convention(convention).value(), Layout::thd, lengths, lengths, 2, replicated);
  std::vector<std::int64_t> rows;
  for (const LocalRow& row : by_rank.at(static_cast<std::size_t>(rank))) rows.push_back(row.canonical);
  return rows;
}

TEST(Conventions, DualChunkGivesARankAnEarlyAndALateChunkOfEachSequence) {
  EXPECT_THAT(rows_of("dual_chunk", {8, 4}, 2, 0), ElementsAre(0, 1, 6, 7, 8, 11));
  EXPECT_THAT(rows_of("dual_chunk", {8, 4}, 2, 1), ElementsAre(2, 3, 4, 5, 9, 10));
}

TEST(Conventions, DualChunkOverThePackIgnoresWhereSequencesEnd) {
  EXPECT_THAT(rows_of("dual_chunk_pack", {3, 5}, 2, 0), ElementsAre(0, 1, 6, 7));
  EXPECT_THAT(rows_of("dual_chunk_pack", {3, 5}, 2, 1), ElementsAre(2, 3, 4, 5));
}

TEST(Conventions, ContiguousGivesNeighbouringRows) {
  EXPECT_THAT(rows_of("contiguous", {4, 2}, 2, 1), ElementsAre(2, 3, 5));
  EXPECT_THAT(rows_of("contiguous_pack", {4, 2}, 2, 1), ElementsAre(3, 4, 5));
}

TEST(Conventions, StripesGoAroundTheRanks) {
  EXPECT_THAT(rows_of("striped", {8}, 2, 1), ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(rows_of("striped:2", {8}, 2, 1), ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(rows_of("striped", {3, 5}, 2, 0), ElementsAre(0, 2, 4, 6)) << "stripes are of the pack";
}

TEST(Conventions, PagesOfEachSequenceGoAroundTheRanks) {
  EXPECT_THAT(rows_of("paged", {3, 4}, 2, 0), ElementsAre(0, 2, 3, 5));
  EXPECT_THAT(rows_of("paged:2", {5, 1}, 2, 0), ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(rows_of("paged:2", {5, 1}, 2, 1), ElementsAre(2, 3));
  EXPECT_EQ(obstacle("paged:2", {5, 1}, 2), "") << "any length";
}

TEST(Conventions, DualChunkOverARingIsCutAgainOverUlyssesRanks) {
  // Rings of 2 and Ulysses groups of 2 neighbours. Ranks 0 and 1 share the first place of the ring, which has rows 0 to
  // 3 and 12 to 15.
  EXPECT_THAT(rows_of("dual_chunk_ulysses:2", {16}, 4, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(rows_of("dual_chunk_ulysses:2", {16}, 4, 1), ElementsAre(12, 13, 14, 15));
  EXPECT_THAT(rows_of("dual_chunk_ulysses:2", {16}, 4, 2), ElementsAre(4, 5, 6, 7));
  // Ulysses groups of ranks that are 2 apart. Rank 1 has the second place of its ring and is the first of its group.
  EXPECT_THAT(rows_of("dual_chunk_ulysses:2:outer", {16}, 4, 1), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(rows_of("dual_chunk_ulysses:2:outer", {16}, 4, 2), ElementsAre(12, 13, 14, 15));
}

TEST(Conventions, OverThePackAreOfEachSequenceInBshd) {
  EXPECT_THAT(rows_of("dual_chunk_pack", {4, 4}, 2, 0, Layout::bshd), ElementsAre(0, 3, 4, 7));
  EXPECT_THAT(rows_of("striped", {4, 4}, 2, 0, Layout::sbhd), ElementsAre(0, 2, 4, 6));
}

TEST(Conventions, KnowPaddingByTheValidLengths) {
  const auto rows = rows_by_convention({.kind = ConventionKind::contiguous}, Layout::thd, {3, 1}, {4, 4}, 2);
  EXPECT_THAT(rows[1], ElementsAre(LocalRow{0, 2, 2}, LocalRow{0, 3, -1}, LocalRow{1, 2, -1}, LocalRow{1, 3, -1}));
}

TEST(Conventions, CutWhatIsNotReplicated) {
  EXPECT_THAT(rows_behind_replicated(3, "dual_chunk", {7, 11}, 0), ElementsAre(0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 16, 17));
  EXPECT_THAT(rows_behind_replicated(3, "dual_chunk", {7, 11}, 1), ElementsAre(0, 1, 2, 4, 5, 7, 8, 9, 12, 13, 14, 15));
  EXPECT_THAT(rows_behind_replicated(3, "dual_chunk_pack", {6, 8}, 0), ElementsAre(0, 1, 2, 3, 4, 6, 7, 8, 12, 13));
  EXPECT_THAT(rows_behind_replicated(3, "striped", {7, 2}, 1), ElementsAre(0, 1, 2, 4, 6, 7, 8));
  EXPECT_THAT(rows_behind_replicated(3, "contiguous_pack", {5, 0, 5}, 0), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(Conventions, PadWhatIsNotReplicated) {
  const auto rows = rows_by_convention({.kind = ConventionKind::contiguous}, Layout::thd, {4, 1}, {5, 1}, 2, 3);
  EXPECT_THAT(rows[1], ElementsAre(LocalRow{0, 0, 0}, LocalRow{0, 1, 1}, LocalRow{0, 2, 2}, LocalRow{0, 4, -1},
                                   LocalRow{1, 0, 4}));
}

TEST(Conventions, OwnEveryRowOnce) {
  for (const std::int64_t replicated : {0, 7}) {
    const std::vector<std::int64_t> lengths{48 + replicated, 0, replicated / 2, 96 + replicated};
    for (const char* text : {"dual_chunk", "dual_chunk_pack", "contiguous", "contiguous_pack", "striped", "striped:3",
                             "dual_chunk_ulysses:2", "dual_chunk_ulysses:4:outer"}) {
      const auto by_rank =
          rows_by_convention(parse_convention(text).value(), Layout::thd, lengths, lengths, 4, replicated);
      EXPECT_EQ(ownership_fault(by_rank, lengths, Layout::thd, "q", replicated), "") << text;
    }
  }
}

TEST(Conventions, SayWhatDoesNotDivide) {
  EXPECT_EQ(obstacle("dual_chunk", {8, 4}, 2), "");
  EXPECT_EQ(obstacle("dual_chunk", {8, 6}, 2), "dual_chunk: 6 rows do not divide into 4 parts");
  EXPECT_EQ(obstacle("dual_chunk_pack", {3, 5}, 2), "");
  EXPECT_EQ(obstacle("striped:4", {12}, 2), "striped:4: 12 rows do not divide into 8 rows of stripes");
  EXPECT_THAT(obstacle("dual_chunk_ulysses:3", {48}, 4), HasSubstr("4 ranks do not divide into rings of 3"));
}

TEST(Conventions, DivideWhatIsNotReplicated) {
  const auto obstacle_behind = [](std::int64_t replicated, const std::vector<std::int64_t>& lengths) {
    return convention_obstacle({}, Layout::thd, lengths, lengths, 2, replicated);
  };
  EXPECT_EQ(obstacle_behind(3, {11, 2}), "");
  EXPECT_EQ(obstacle_behind(3, {11, 8}), "dual_chunk: 5 rows do not divide into 4 parts");
}

TEST(Conventions, AreReadAsTheyAreWritten) {
  for (const char* text : {"dual_chunk", "dual_chunk_pack", "contiguous", "contiguous_pack", "striped", "striped:128",
                           "paged", "paged:16", "dual_chunk_ulysses:2", "dual_chunk_ulysses:2:outer"}) {
    EXPECT_EQ(to_string(parse_convention(text).value()), text);
  }
  for (const char* text : {"", "zigzag", "striped:0", "striped:x", "paged:0", "striped:1:outer", "contiguous:2",
                           "dual_chunk_ulysses", "dual_chunk_ulysses:2:inner", "dual_chunk:"}) {
    EXPECT_FALSE(parse_convention(text)) << text;
  }
}

}  // namespace
}  // namespace cp_pool::verify
