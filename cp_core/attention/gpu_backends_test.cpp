// Holds GPU backends against an fp64 reference for every kind of group, shape, dtype and bias.
#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include <ATen/ops/randn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cp_core/attention/backend.h"
#include "cp_core/attention/cuda_backends.h"
#include "cp_core/testing/tile_group_cases.h"
#include "cp_core/testing/tile_groups_on_gpu.h"

namespace cp_pool {
namespace {

using test::GpuBackendTest;
using test::GroupCase;
using test::GroupExpected;
using test::GroupInputs;
using test::kGqa;
using test::Setting;
using test::TileShape;

class GpuBackend : public GpuBackendTest, public testing::WithParamInterface<Setting> {};

void expect_right_answers(const Setting& s, const at::Tensor& bias) {
  const GroupInputs inputs = test::make_group_inputs(s.c, s.shape, s.dtype, bias, at::kCUDA);
  const GroupExpected expected = test::expect_group(s.c, inputs, at::kCUDA);
  const GroupInputs gpu_inputs = test::on_gpu(inputs);
  const auto backend = make_cuda_backend(s.backend);
  try {
    AttentionPartial partial = test::make_partial(gpu_inputs.operands);
    backend->forward(s.c.group, gpu_inputs.operands, partial);
    EXPECT_EQ(test::forward_differences(s.c, expected, partial, precision(s)), "")
        << "forward " << test::setting_name(s);
  } catch (const std::exception& e) {
    ADD_FAILURE() << "forward " << test::setting_name(s) << ": " << e.what();
  }
  try {
    PendingSums ready{.sums = test::make_sums(gpu_inputs.operands)};
    backend->backward(s.c.group, gpu_inputs.operands, gpu_inputs.backward, ready);
    EXPECT_EQ(test::backward_differences(expected, ready.sums, precision(s)), "")
        << "backward " << test::setting_name(s);
  } catch (const std::exception& e) {
    ADD_FAILURE() << "backward " << test::setting_name(s) << ": " << e.what();
  }
}

TEST_P(GpuBackend, GivesTheAnswersOfFp64AndTouchesNoOtherRows) {
  expect_right_answers(GetParam(), {});
}

const TileShape kSmall{.name = "d64", .heads = 4, .kv_heads = 4, .head_dim_qk = 64, .head_dim_v = 64};
const TileShape kMla{.name = "mla", .heads = 4, .kv_heads = 4, .head_dim_qk = 192, .head_dim_v = 128};
const TileShape kMlaGqa{.name = "mla_gqa", .heads = 4, .kv_heads = 2, .head_dim_qk = 128, .head_dim_v = 64};
const TileShape kLarge{.name = "d256", .heads = 2, .kv_heads = 2, .head_dim_qk = 256, .head_dim_v = 256};
const TileShape kOdd{.name = "odd", .heads = 2, .kv_heads = 1, .head_dim_qk = 36, .head_dim_v = 20};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const GroupCase& c : test::group_cases()) {
    all.push_back({Backend::math, at::kFloat, kGqa, c});
    for (const Backend library : {Backend::flash, Backend::cudnn}) {
      for (const TileShape& shape : {kGqa, kSmall, kMla, kMlaGqa}) {
        all.push_back({library, at::kBFloat16, shape, c});
      }
      all.push_back({library, at::kHalf, kGqa, c});
    }
  }
  for (const char* name : {"causal_square", "ragged_causal_gaps", "band_tall"}) {
    const GroupCase c = test::group_case(name);
    all.push_back({Backend::math, at::kBFloat16, kMla, c});
    for (const Backend library : {Backend::flash, Backend::cudnn}) {
      all.push_back({library, at::kBFloat16, kLarge, c});
      all.push_back({library, at::kBFloat16, kOdd, c});
      all.push_back({library, at::kHalf, kMla, c});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, GpuBackend, testing::ValuesIn(settings()),
                         [](const auto& info) { return test::setting_name(info.param); });

class GpuBias : public GpuBackendTest, public testing::WithParamInterface<Setting> {};

// [1 or sequences, 1 or heads, positions, positions]
at::Tensor make_bias(const GroupCase& c, std::int64_t sequences, std::int64_t heads) {
  std::int64_t positions = 0;
  for (const Tile& tile : c.group.tiles) {
    positions = std::max({positions, tile.q_position + tile.m, tile.k_position + tile.n});
  }
  return at::randn({sequences, heads, positions, positions}, at::kFloat);
}

TEST_P(GpuBias, OfEachHeadAndSequence) {
  const Setting& s = GetParam();
  expect_right_answers(s, make_bias(s.c, static_cast<std::int64_t>(s.c.group.tiles.size()), s.shape.heads));
}

TEST_P(GpuBias, SharedByHeadsAndSequences) {
  const Setting& s = GetParam();
  expect_right_answers(s, make_bias(s.c, 1, 1));
}

TEST_P(GpuBias, InTheBackendsParts) {
  const Setting& s = GetParam();
  const GroupInputs inputs =
      test::make_group_inputs(s.c, s.shape, s.dtype, make_bias(s.c, 1, s.shape.heads), at::kCUDA);
  const GroupExpected expected = test::expect_group(s.c, inputs, at::kCUDA);
  const GroupInputs gpu_inputs = test::on_gpu(inputs);
  const auto backend = make_cuda_backend(s.backend);
  const AttentionPartial partial = test::forward_in_parts(*backend, s.c, gpu_inputs.operands);
  EXPECT_EQ(test::forward_differences(s.c, expected, partial, precision(s)), "");
  PendingSums ready{.sums = test::make_sums(gpu_inputs.operands)};
  for (const TileGroup& part : backend->parts(s.c.group, gpu_inputs.operands)) {
    backend->backward(part, gpu_inputs.operands, gpu_inputs.backward, ready);
  }
  EXPECT_EQ(test::backward_differences(expected, ready.sums, precision(s)), "");
}

// Moves every tile into the interior of the bias.
GroupCase inside_bias(GroupCase c) {
  for (Tile& tile : c.group.tiles) {
    tile.q_position = 24;
    tile.k_position = 13;
  }
  c.name += "_inside";
  return c;
}

std::vector<Setting> bias_settings() {
  std::vector<Setting> all;
  for (const char* name : {"full_square", "full_tall", "causal_square", "causal_wide", "batch_causal", "band_wide",
                           "band_tall", "ragged_full_gaps", "ragged_causal_gaps", "one_pair"}) {
    const GroupCase c = test::group_case(name);
    for (const GroupCase& placed : {c, inside_bias(c)}) {
      all.push_back({Backend::math, at::kFloat, kGqa, placed});
      all.push_back({Backend::cudnn, at::kBFloat16, kGqa, placed});
      all.push_back({Backend::cudnn, at::kHalf, kMla, placed});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, GpuBias, testing::ValuesIn(bias_settings()),
                         [](const auto& info) { return test::setting_name(info.param); });

}  // namespace
}  // namespace cp_pool
