// Tiles whose scores are computed in several blocks: of 1 GiB in the math backend, and of 256 MiB where the largest
// score is computed for a library (raise_max_logit).
#include <limits>
#include <string>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cp_core/attention/cuda_backends.h"
#include "cp_core/attention/tile_scores.h"
#include "cp_core/testing/tile_groups_on_gpu.h"

namespace cp_pool {
namespace {

constexpr std::int64_t kDim = 64;
constexpr double kScale = 0.125;

struct Large {
  const char* name;
  std::int64_t rows;
  std::int64_t keys;
  std::int64_t heads;
  std::int64_t kv_heads;
};

// "heads": one head's scores fit into a block of the math backend. "rows": they do not, and the head is cut by rows.
constexpr Large kLarges[] = {{.name = "heads", .rows = 8192, .keys = 8192, .heads = 12, .kv_heads = 12},
                             {.name = "rows", .rows = 16384, .keys = 24576, .heads = 4, .kv_heads = 2}};

struct BlockSetting {
  Backend backend;
  Large large;
  bool causal;
};

class GpuScoreBlocks : public test::GpuBackendTest, public testing::WithParamInterface<BlockSetting> {};

// Each head has one score that is larger than all others, in a block that differs from head to head. A causal window
// hides an even larger score in each head but the last.
TEST_P(GpuScoreBlocks, GiveTheLargestScoreOfEachHead) {
  const auto& [backend_name, large, causal] = GetParam();
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  AttentionOperands operands;
  operands.scale = kScale;
  operands.q = at::randn({large.rows, large.heads, kDim}, options);
  operands.k = at::randn({large.keys, large.kv_heads, kDim}, options);
  operands.v = at::randn({large.keys, large.kv_heads, kDim}, options);
  Tile tile;
  tile.m = large.rows;
  tile.n = large.keys;
  if (causal) tile.right = 0;
  const auto set = [](at::Tensor& of, std::int64_t row, std::int64_t head, std::int64_t element, double value) {
    of.select(0, row).select(0, head).zero_();
    of.select(0, row).select(0, head).select(0, element).fill_(value);
  };
  const std::int64_t group = large.heads / large.kv_heads;
  std::vector<float> expected;
  for (std::int64_t h = 0; h < large.heads; ++h) {
    const std::int64_t query = (large.rows - 1) * (h + 1) / large.heads;  // the last head's is the last row
    // With a causal window, row i sees the keys up to this one.
    const std::int64_t key = query + large.keys - large.rows;
    const double value = static_cast<double>(32 + h);
    set(operands.q, query, h, h, value);
    set(operands.k, key, h / group, h, 32.0);
    if (causal && key + 1 < large.keys) set(operands.k, key + 1, h / group, h, 64.0);
    expected.push_back(static_cast<float>(value * 32.0 * kScale));
  }
  const TileGroup tiles{.left = tile.left, .right = tile.right, .tiles = {tile}};
  ASSERT_GT(tile_blocks(tile, operands, std::size_t{1} << 30U).size(), 1U);
  const auto backend = make_cuda_backend(backend_name);
  AttentionPartial partial{
      .out = at::zeros({large.rows, large.heads, kDim}, options.dtype(at::kFloat)),
      .lse = at::zeros({large.heads, large.rows}, options.dtype(at::kFloat)),
      .max_logit = at::full({large.heads}, -std::numeric_limits<double>::infinity(), options.dtype(at::kFloat))};
  for (const TileGroup& part : backend->parts(tiles, operands)) backend->forward(part, operands, partial);
  const at::Tensor got = partial.max_logit.cpu();
  for (std::int64_t h = 0; h < large.heads; ++h) {
    EXPECT_EQ(got[h].item<float>(), expected[static_cast<std::size_t>(h)]) << "head " << h;
  }
}

std::vector<BlockSetting> block_settings() {
  std::vector<BlockSetting> all;
  for (const Backend backend : {Backend::math, Backend::flash, Backend::cudnn}) {
    for (const Large& large : kLarges) {
      for (const bool causal : {false, true}) all.push_back({.backend = backend, .large = large, .causal = causal});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, GpuScoreBlocks, testing::ValuesIn(block_settings()), [](const auto& info) {
  return fmt::format("{}_{}{}", to_string(info.param.backend), info.param.large.name,
                     info.param.causal ? "_causal" : "");
});

}  // namespace
}  // namespace cp_pool
