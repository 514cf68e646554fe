#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/diagnosis/wrong_pairs.h"
#include "cp_core/testing/cases_on_threads.h"

namespace cp_pool::diagnosis {
namespace {

using testing::ElementsAre;

// Two sequences of 6 and 8 tokens, padded to 8, over two ranks.
Case ragged_pack() {
  Case c = verify::test::small_case();
  c.layout = Layout::thd;
  c.pad_between_seqs = true;
  c.seqlens = {{6, 8}};
  return c;
}

ProbeGrid grid_of(const Case& c, const verify::Sharding& sharding) {
  return make_grid(c, resolve_lengths(c), sharding, c.cp_size);
}

ProbeGrid grid_by(const Case& c, const char* convention) {
  verify::Sharding sharding;
  sharding.rows = verify::parse_convention(convention).value();
  return grid_of(c, sharding);
}

std::vector<int> ranks_of(const GridAxis& axis) {
  std::vector<int> ranks;
  for (const GridRow& row : axis.rows) ranks.push_back(row.rank);
  return ranks;
}

std::vector<std::int64_t> chunks_of(const GridAxis& axis) {
  std::vector<std::int64_t> chunks;
  for (const GridRow& row : axis.rows) chunks.push_back(row.chunk);
  return chunks;
}

TEST(ProbeGrid, HasThePaddedRowsOfAllRanksSequenceBySequence) {
  const GridAxis axis = grid_by(ragged_pack(), "dual_chunk").kv;
  EXPECT_THAT(axis.lengths, ElementsAre(8, 8));
  EXPECT_TRUE(axis.places_padding);
  EXPECT_THAT(ranks_of(axis), ElementsAre(0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0));
  EXPECT_THAT(chunks_of(axis), ElementsAre(0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1, 2, 2, 3, 3));
  EXPECT_EQ(axis.row(7), (GridRow{.sequence = 0, .position = 7, .padding = true, .rank = 0, .chunk = 3}));
  // Rank 1 holds positions 2..5 of each sequence.
  EXPECT_EQ(axis.by_rank[1][4], (verify::LocalRow{.sequence = 1, .position = 2, .canonical = 10}));
}

TEST(ProbeGrid, NumbersChunksOfThePackWhereItIsCutAsAWhole) {
  EXPECT_THAT(chunks_of(grid_by(ragged_pack(), "dual_chunk_pack").kv),
              ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3));
}

TEST(ProbeGrid, HasNoChunksOfOtherConventions) {
  EXPECT_THAT(chunks_of(grid_by(ragged_pack(), "striped").kv), testing::Each(-1));
}

TEST(ProbeGrid, PutsListedPaddingBehindTheRowsOfItsSequence) {
  verify::Sharding sharding;
  const auto listed = [](const std::vector<std::int64_t>& rows) { return verify::local_rows(rows, {6, 8}); };
  const verify::RowsByRank rows{listed({0, -1, 1, 2, 13, -1}), listed({3, 4, 5, 6, 7, 8, 9, 10, 11, 12})};
  sharding.rows = verify::Ownership{.q = rows, .kv = rows};
  const GridAxis axis = grid_of(ragged_pack(), sharding).q;
  EXPECT_THAT(axis.lengths, ElementsAre(7, 9));
  EXPECT_FALSE(axis.places_padding);
  EXPECT_TRUE(axis.row(6).padding);
  EXPECT_EQ(axis.row(15), (GridRow{.sequence = 1, .position = 8, .padding = true, .rank = 0}));
  EXPECT_EQ(queries_text(axis, {15, 15}), "1 padding query of sequence 1 (rank 0)");
}

TEST(ProbeGrid, HasNoPaddingWhereThereIsNone) {
  verify::Sharding sharding;
  const auto listed = [](const std::vector<std::int64_t>& rows) { return verify::local_rows(rows, {6, 8}); };
  const verify::RowsByRank rows{listed({0, 1, 2, 6, 7, 8, 9}), listed({3, 4, 5, 10, 11, 12, 13})};
  sharding.rows = verify::Ownership{.q = rows, .kv = rows};
  const GridAxis axis = grid_of(ragged_pack(), sharding).kv;
  EXPECT_THAT(axis.lengths, ElementsAre(6, 8));
  EXPECT_THAT(ranks_of(axis), ElementsAre(0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1));
}

TEST(PairText, NamesPlacesOfRowsAndOtherSequences) {
  const ProbeGrid grid = grid_by(ragged_pack(), "dual_chunk");
  EXPECT_EQ(queries_text(grid.q, {2, 3}), "queries 2..3 of sequence 0 (rank 1)");
  EXPECT_EQ(queries_text(grid.q, {9, 9}), "query 1 of sequence 1 (rank 0)");
  EXPECT_EQ(queries_text(grid.q, {6, 7}), "2 padding queries 6..7 of sequence 0 (rank 0)");
  EXPECT_EQ(keys_text(grid.kv, {0, 5}, 0), "keys 0..5 (chunks 0..2, ranks 0, 1)");
  EXPECT_EQ(keys_text(grid.kv, {12, 13}, 0), "keys 4..5 of sequence 1 (chunk 2, rank 1)");
  EXPECT_EQ(keys_text(grid.kv, {6, 7}, 1), "2 padding keys 6..7 of sequence 0 (chunk 3, rank 0)");
}

TEST(PairText, NamesNoSequenceWhereThereIsOne) {
  Case c = ragged_pack();
  c.batch = 1;
  c.seqlens = {{8}};
  const ProbeGrid grid = grid_by(c, "contiguous");
  EXPECT_EQ(queries_text(grid.q, {2, 5}), "queries 2..5 (ranks 0, 1)");
  EXPECT_EQ(keys_text(grid.kv, {4, 4}, 0), "key 4 (rank 1)");
}

}  // namespace
}  // namespace cp_pool::diagnosis
