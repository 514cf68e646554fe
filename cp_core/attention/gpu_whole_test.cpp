// Results of whole plans have the same bits as results that go through fp32 sums.
#include <memory>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "cp_core/attention/cuda_backends.h"
#include "cp_core/testing/tile_groups_on_gpu.h"

namespace cp_pool {
namespace {

using test::GpuBackendTest;
using test::GroupCase;
using test::GroupInputs;

const test::TileShape kShape{.name = "mla_gqa", .heads = 8, .kv_heads = 2, .head_dim_qk = 192, .head_dim_v = 128};

// Square tiles of these lengths, one after the other from row 0, that cover all rows.
GroupCase packed_case(const std::string& name, const std::vector<std::int64_t>& lengths, bool causal) {
  GroupCase c{.name = name, .q_tokens = 0, .k_tokens = 0, .group = {}};
  if (causal) c.group.right = 0;
  for (const std::int64_t length : lengths) {
    c.group.tiles.push_back({.q_row = c.q_tokens,
                             .k_row = c.k_tokens,
                             .m = length,
                             .n = length,
                             .left = c.group.left,
                             .right = c.group.right,
                             .sequence = static_cast<std::int64_t>(c.group.tiles.size())});
    c.q_tokens += length;
    c.k_tokens += length;
  }
  return c;
}

std::vector<GroupCase> whole_cases() {
  return {packed_case("one", {512}, true), packed_case("full", {512}, false),
          packed_case("batch", {256, 256, 256}, true), packed_case("ragged", {384, 130, 257}, true)};
}

class GpuWhole : public GpuBackendTest, public testing::WithParamInterface<GroupCase> {
 protected:
  void SetUp() override {
    GpuBackendTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    inputs_ = test::on_gpu(test::make_group_inputs(GetParam(), kShape, at::kBFloat16, {}));
    backend_ = make_cuda_backend(Backend::cudnn);
  }

  [[nodiscard]] TilePlan plan() const { return {GetParam().group}; }
  [[nodiscard]] PackedGradients zeros() const {
    const auto zeros_of = [](const at::Tensor& t) { return at::zeros_like(t, t.options().dtype(at::kFloat)); };
    return {.dq = zeros_of(inputs_.operands.q),
            .dk = zeros_of(inputs_.operands.k),
            .dv = zeros_of(inputs_.operands.v),
            .dbias = {}};
  }

  GroupInputs inputs_;
  std::unique_ptr<AttentionBackend> backend_;
};

void expect_same(const at::Tensor& a, const at::Tensor& b, const char* what) {
  EXPECT_EQ(a.sizes(), b.sizes()) << what;
  if (a.sizes() == b.sizes()) {
    EXPECT_TRUE(at::equal(a.to(at::kFloat), b.to(at::kFloat))) << what;
  }
}

TEST_P(GpuWhole, ForwardGivesTheBitsOfThePartial) {
  AttentionPartial partial = test::make_partial(inputs_.operands);
  partial.max_logit.reset();
  backend_->forward(GetParam().group, inputs_.operands, partial);
  const std::vector<CalledForward> calls = backend_->forward_calls(GetParam().group, inputs_.operands);
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_TRUE(all_in_place(calls.front().rows, GetParam().q_tokens));
  EXPECT_EQ(calls.front().out.scalar_type(), at::kBFloat16);
  expect_same(calls.front().out, partial.out, "out");
  expect_same(calls.front().lse, partial.lse, "lse");
}

TEST_P(GpuWhole, BackwardGivesTheBitsOfTheSums) {
  const PackedGradients sums = zeros();
  PendingSums ready{.sums = sums};
  backend_->backward(GetParam().group, inputs_.operands, inputs_.backward, ready);
  ASSERT_TRUE(backend_->contributes_once(plan(), inputs_.operands));
  const PackedGradients whole = backend_->called_gradients(plan(), inputs_.operands, inputs_.backward);
  expect_same(whole.dq, sums.dq, "dq");
  expect_same(whole.dk, sums.dk, "dk");
  expect_same(whole.dv, sums.dv, "dv");
}

TEST_P(GpuWhole, EmptySumsBecomeWhatZerosBecome) {
  const PackedGradients filled = zeros();
  PendingSums ready{.sums = filled};
  backend_->backward(GetParam().group, inputs_.operands, inputs_.backward, ready);
  const PackedGradients sums = zeros();
  for (const at::Tensor& sum : {sums.dq, sums.dk, sums.dv}) sum.fill_(1e30);
  PendingSums pending{.sums = sums, .dq_empty = true, .dkv_empty = true};
  backend_->backward(GetParam().group, inputs_.operands, inputs_.backward, pending);
  EXPECT_FALSE(pending.dq_empty || pending.dkv_empty);
  expect_same(sums.dq, filled.dq, "dq");
  expect_same(sums.dk, filled.dk, "dk");
  expect_same(sums.dv, filled.dv, "dv");
}

INSTANTIATE_TEST_SUITE_P(All, GpuWhole, testing::ValuesIn(whole_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cp_pool
