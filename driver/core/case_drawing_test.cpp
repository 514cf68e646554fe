#include "driver/core/case_drawing.h"

#include <gmock/gmock.h>

#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using namespace ::testing;

SequenceLengths one_sequence(std::int64_t valid, std::int64_t padded) {
  return {.valid_q = {valid}, .padded_q = {padded}, .valid_kv = {valid}, .padded_kv = {padded}};
}

TEST(DrawCase, HasBlocksOfEveryKindAndTheirOwners) {
  Case c = test::example_case();
  c.causal = true;
  const CaseDrawing drawing = draw_case(c, one_sequence(12, 16), 0, 8);
  EXPECT_EQ(drawing.q_per_block, 2);
  EXPECT_THAT(drawing.rows, ElementsAre("+.....  ", "#+....  ", "##+...  ", "###+..  ", "####+.  ", "#####+  ",
                                        "        ", "        "));
  EXPECT_THAT(drawing.q_ranks, ElementsAre(0, 0, 1, 1, 1, 1, 0, 0));
  EXPECT_EQ(drawing.kv_ranks, drawing.q_ranks);
}

TEST(DrawCase, HasABlockForEachChunkIfThereAreMoreThanBlocks) {
  Case c = test::example_case();
  c.cp_size = 8;
  EXPECT_THAT(draw_case(c, one_sequence(160, 160), 0, 4).rows, SizeIs(16));
}

TEST(DrawCase, OfAnEmptySequenceThereIsNothing) {
  EXPECT_THAT(draw_case(test::example_case(), one_sequence(0, 0), 0, 8).rows, IsEmpty());
}

}  // namespace
}  // namespace cp_pool
