#include "cp_core/verify/rank_view.h"

#include <stdexcept>

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool::verify {
namespace {

// One sequence with 3 tokens and one row of padding, 4 query heads and 2 key-value heads.
Case padded_case() {
  Case c;
  c.cp_size = 1;
  c.layout = Layout::thd;
  c.dtype = DType::fp32;
  c.batch = 1;
  c.seqlen_q = c.seqlen_kv = 4;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim_qk = c.head_dim_v = 2;
  c.softmax = SoftmaxType::learnable;
  c.bias = BiasShape::shape_1hss;
  c.seqlens = {3};
  c.pad_between_seqs = true;
  return c;
}

class OneRank : public testing::Test {
 protected:
  OneRank() : lengths_{.valid_q = {3}, .padded_q = {4}, .valid_kv = {3}, .padded_kv = {4}} {}

  [[nodiscard]] RankView view(const Sharding& sharding) const { return {case_, lengths_, sharding, 0, 1}; }
  [[nodiscard]] Shards shards(const Sharding& sharding) const { return make_shards(case_, inputs_, view(sharding)); }

  Case case_ = padded_case();
  SequenceLengths lengths_;
  CanonicalInputs inputs_ = make_inputs(canonical_problem(case_, lengths_));
};

TEST_F(OneRank, PaddingOfInputsIsAsDeclared) {
  const Shards poisoned = shards({.padding = PaddingFill::nan});
  EXPECT_TRUE(poisoned.q[3].isnan().all().item<bool>());
  EXPECT_TRUE(poisoned.dout[3].isnan().all().item<bool>());
  EXPECT_TRUE(poisoned.bias.select(2, 3).isnan().all().item<bool>());
  const Shards zeros = shards({.padding = PaddingFill::zeros});
  for (const at::Tensor& tensor : {zeros.q, zeros.k, zeros.v, zeros.dout}) {
    EXPECT_TRUE(tensor[3].eq(0).all().item<bool>());
  }
  const Shards garbage = shards({.padding = PaddingFill::garbage});
  for (const at::Tensor& tensor : {garbage.q, garbage.k, garbage.v, garbage.bias.select(2, 3)}) {
    EXPECT_TRUE(tensor.isfinite().all().item<bool>());
  }
  EXPECT_TRUE(garbage.q[3].ne(0).any().item<bool>());
  EXPECT_TRUE(garbage.dout[3].eq(0).all().item<bool>());
}

TEST_F(OneRank, ValidRowsAreTheSameWhateverPaddingHolds) {
  const Shards poisoned = shards({.padding = PaddingFill::nan});
  const Shards garbage = shards({.padding = PaddingFill::garbage});
  EXPECT_TRUE(at::equal(poisoned.q.narrow(0, 0, 3), garbage.q.narrow(0, 0, 3)));
  EXPECT_TRUE(at::equal(poisoned.dout.narrow(0, 0, 3), garbage.dout.narrow(0, 0, 3)));
}

TEST_F(OneRank, StridedShardsHoldTheSameInLargerTensors) {
  const Shards contiguous = shards({.padding = PaddingFill::zeros});
  case_.strided = true;
  const Shards strided = shards({.padding = PaddingFill::zeros});
  for (const auto member : {&Shards::q, &Shards::k, &Shards::v, &Shards::dout}) {
    EXPECT_FALSE((strided.*member).is_contiguous());
    EXPECT_TRUE(at::equal(strided.*member, contiguous.*member));
  }
}

// Query head 1 of an interleaved implementation reads key-value head 1, whose first query head is head 2 of the
// definition.
TEST_F(OneRank, InterleavedHeadsAreTheSameHeadsInAnotherOrder) {
  const Sharding interleaved{.heads = HeadOrder::interleaved};
  const Shards given = shards(interleaved);
  EXPECT_TRUE(at::equal(given.q.select(1, 1).narrow(0, 0, 3), inputs_.q.select(1, 2)));
  EXPECT_TRUE(at::equal(given.q.select(1, 2).narrow(0, 0, 3), inputs_.q.select(1, 1)));
  EXPECT_EQ(given.sink[1].item<float>(), inputs_.sink[2].item<float>());
  EXPECT_TRUE(at::equal(given.bias.select(1, 1).narrow(1, 0, 3).narrow(2, 0, 3), inputs_.bias.select(1, 2)));
  EXPECT_TRUE(at::equal(given.k.narrow(0, 0, 3), inputs_.k));

  Results results;
  results.out = given.q;
  results.dbias = given.bias;
  results.lse = given.q.select(2, 0).t();
  results.dsink = given.sink;
  const Results defined = in_defined_heads(case_, results, view(interleaved));
  EXPECT_TRUE(at::equal(defined.out.narrow(0, 0, 3), inputs_.q));
  EXPECT_TRUE(at::equal(defined.dbias.narrow(2, 0, 3).narrow(3, 0, 3), inputs_.bias));
  EXPECT_TRUE(at::equal(defined.lse.narrow(1, 0, 3), inputs_.q.select(2, 0).t()));
  EXPECT_TRUE(at::equal(defined.dsink, inputs_.sink));
}

TEST_F(OneRank, ResultsOfAnotherShapeStayForTheCheckToRefuse) {
  Results results;
  results.out = inputs_.k;  // 2 heads
  const Results defined = in_defined_heads(case_, results, view({.heads = HeadOrder::interleaved}));
  EXPECT_TRUE(at::equal(defined.out, inputs_.k));
}

TEST_F(OneRank, RowsThatNobodyOwnsAreRefusedByName) {
  Sharding sharding;
  sharding.rows = Ownership{.q = {local_rows({0, 2}, {3})}, .kv = {local_rows({0, 1, 2}, {3})}};
  try {
    (void)view(sharding);
    FAIL() << "nothing was thrown";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "no rank owns row 1 of q (sequence 0, position 1)");
  }
}

TEST_F(OneRank, ListedRowsMayBeInAnyOrder) {
  Sharding sharding;
  sharding.rows = Ownership{.q = {local_rows({2, 0, 1}, {3})}, .kv = {local_rows({0, 1, 2}, {3})}};
  const Shards given = make_shards(case_, inputs_, view(sharding));
  EXPECT_TRUE(at::equal(given.q[0], inputs_.q[2]));
  EXPECT_TRUE(at::equal(given.k, inputs_.k));
}

}  // namespace
}  // namespace cp_pool::verify
