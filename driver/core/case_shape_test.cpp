#include "driver/core/case_shape.h"

#include <gmock/gmock.h>

#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using namespace ::testing;

Case masked(bool causal, std::int64_t left, std::int64_t right, std::int64_t chunk) {
  Case c = test::example_case();
  c.causal = causal;
  c.window = {left, right};
  c.chunk = chunk;
  return c;
}

TEST(OwnedChunks, AreTheTwoOfTheDualChunkPartition) {
  const auto chunks = owned_chunks(16, 2, 0);
  ASSERT_EQ(chunks.size(), 2U);
  EXPECT_EQ(chunks[0].begin, 0);
  EXPECT_EQ(chunks[0].end, 4);
  EXPECT_EQ(chunks[1].begin, 12);
  EXPECT_EQ(chunks[1].end, 16);
}

SequenceLengths equal(std::int64_t batch, std::int64_t length) {
  const std::vector<std::int64_t> all(static_cast<std::size_t>(batch), length);
  return {.valid_q = all, .padded_q = all, .valid_kv = all, .padded_kv = all};
}

TEST(ComputeOf, CausalWorkIsTheSameOnEveryRankAndAddsUp) {
  Case c = masked(true, -1, -1, 0);
  c.cp_size = 4;
  const SequenceLengths lengths = equal(2, 64);
  std::int64_t pairs = 0;
  for (int rank = 0; rank < c.cp_size; ++rank) {
    const Compute compute = compute_of(c, lengths, rank);
    EXPECT_EQ(compute.pairs, compute_of(c, lengths, 0).pairs);
    EXPECT_EQ(compute.full_tiles + compute.band_tiles + compute.empty_tiles, 2 * 2 * 8);
    EXPECT_EQ(compute.band_tiles, 2 * 2);  // the diagonal crosses each of a rank's chunks once
    EXPECT_EQ(compute.full_tiles, 2 * 7);
    pairs += compute.pairs;
  }
  EXPECT_EQ(pairs, 2 * 64 * 65 / 2);
}

TEST(ComputeOf, SplittingHeadsGivesEveryRankAllPairsOfFewerHeads) {
  Case c = masked(true, -1, -1, 0);
  c.comm = CommType::a2a;
  const Compute compute = compute_of(c, equal(1, 64), 1);
  EXPECT_EQ(compute.pairs, 64 * 65 / 2);
  EXPECT_EQ(compute.heads, c.heads / 2);
  constexpr double kPairs = 64 * 65 / 2.0;
  EXPECT_EQ(compute.forward_flops(c), 2.0 * kPairs * 2 * (64 + 64));
  EXPECT_EQ(compute.backward_flops(c), 2.0 * kPairs * 2 * (3 * 64 + 2 * 64));
}

TEST(ComputeOf, PaddingIsNoWork) {
  SequenceLengths lengths = equal(1, 64);
  lengths.valid_q = lengths.valid_kv = {0};
  const Compute compute = compute_of(masked(true, -1, -1, 0), lengths, 0);
  EXPECT_EQ(compute.pairs, 0);
  EXPECT_EQ(compute.empty_tiles, 8);
}

// Sizes for bf16 on 2 ranks: 64 rows of q and kv on each, 4 heads, 2 kv heads, both head dims 64.
constexpr std::int64_t kKv = 64 * 2 * 128;
constexpr std::int64_t kQ = 64 * 4 * 64;
constexpr std::int64_t kRow = 64 * 4;

Traffic traffic(CommType comm) {
  Case c = test::example_case();
  c.comm = comm;
  return traffic_of(c, equal(1, 128));
}

TEST(TrafficOf, IsWhatTheExchangesSend) {
  EXPECT_EQ(traffic(CommType::p2p).forward, kKv * 2);
  EXPECT_EQ(traffic(CommType::p2p).backward, kKv * 4);
  EXPECT_EQ(traffic(CommType::all_gather).forward, kKv * 2);
  EXPECT_EQ(traffic(CommType::all_gather).backward, kKv * 2 + kKv * 4);
  EXPECT_EQ(traffic(CommType::a2a).forward, ((kQ + kKv + kQ) * 2 + kRow * 4) / 2);
  EXPECT_EQ(traffic(CommType::a2a).backward, ((kQ + kQ + kKv) * 2 + kRow * 4) / 2);
}

TEST(TrafficOf, ARingBeginsItsBackwardWithWhatTheForwardHeldLast) {
  Case c = test::example_case();
  c.cp_size = 4;
  const Traffic traffic = traffic_of(c, equal(1, 128));
  EXPECT_EQ(traffic.forward, 3 * kKv / 2 * 2);
  EXPECT_EQ(traffic.backward, 2 * kKv / 2 * 2 + 3 * kKv / 2 * 4);
}

TEST(TrafficOf, OneRankSendsNothingAndForwardOnlyHasNoBackward) {
  Case c = test::example_case();
  c.cp_size = 1;
  EXPECT_EQ(traffic_of(c, equal(1, 128)).forward, 0);
  EXPECT_EQ(traffic_of(c, equal(1, 128)).backward, 0);
  c.cp_size = 2;
  c.training = false;
  EXPECT_EQ(traffic_of(c, equal(1, 128)).backward, 0);
}

TEST(DrawCase, HasBlocksOfEveryKindAndTheirOwners) {
  Case c = test::example_case();
  c.causal = true;
  const CaseDrawing drawing = draw_case(c, test::one_sequence(12, 16), 0, 8);
  EXPECT_EQ(drawing.q_per_block, 2);
  EXPECT_THAT(drawing.rows, ElementsAre("+.....  ", "#+....  ", "##+...  ", "###+..  ", "####+.  ", "#####+  ",
                                        "        ", "        "));
  EXPECT_THAT(drawing.q_ranks, ElementsAre(0, 0, 1, 1, 1, 1, 0, 0));
  EXPECT_EQ(drawing.kv_ranks, drawing.q_ranks);
}

TEST(DrawCase, HasABlockForEachChunkIfThereAreMoreThanBlocks) {
  Case c = test::example_case();
  c.cp_size = 8;
  EXPECT_THAT(draw_case(c, test::one_sequence(160, 160), 0, 4).rows, SizeIs(16));
}

TEST(DrawCase, OfAnEmptySequenceThereIsNothing) {
  EXPECT_THAT(draw_case(test::example_case(), test::one_sequence(0, 0), 0, 8).rows, IsEmpty());
}

}  // namespace
}  // namespace cp_pool
