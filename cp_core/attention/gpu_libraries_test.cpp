// Tests what backends promise besides right answers: repeatable bits, capture in CUDA graphs, bounded memory, refusals.
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>

#include "cp_core/attention/attend.h"
#include "cp_core/attention/backend_unsupported.h"
#include "cp_core/attention/cuda_backends.h"
#include "cp_core/attention/cudnn/cudnn_backend.h"
#include "cp_core/attention/tile_scores.h"
#include "cp_core/cuda/device.h"
#include "cp_core/perf/cuda_steps.h"
#include "cp_core/testing/tile_group_cases.h"
#include "cp_core/testing/tile_groups_on_gpu.h"

namespace cp_pool {
namespace {

using test::GpuBackendTest;
using test::GroupCase;
using test::GroupInputs;
using test::kGqa;
using test::TileShape;

class GpuCapture : public GpuBackendTest {};

class GpuLibrary : public GpuBackendTest, public testing::WithParamInterface<Backend> {};

struct Problem {
  GroupCase c;
  GroupInputs inputs;  // on the GPU
};

Problem make_gpu_problem(const std::string& name, const TileShape& shape) {
  const GroupCase c = test::group_case(name);
  return {.c = c, .inputs = test::on_gpu(test::make_group_inputs(c, shape, at::kBFloat16, {}))};
}

struct Answers {
  AttentionPartial partial;
  PackedGradients sums;

  [[nodiscard]] std::vector<at::Tensor> tensors() const {
    return {partial.out, partial.lse, partial.max_logit, sums.dq, sums.dk, sums.dv};
  }
};

void compute(AttentionBackend& backend, const Problem& problem, Answers& answers) {
  backend.forward(problem.c.group, problem.inputs.operands, answers.partial);
  PendingSums ready{.sums = answers.sums};
  backend.backward(problem.c.group, problem.inputs.operands, problem.inputs.backward, ready);
}

Answers make_answers(const Problem& problem) {
  return {.partial = test::make_partial(problem.inputs.operands), .sums = test::make_sums(problem.inputs.operands)};
}

TEST_P(GpuLibrary, RepeatsBitByBitInDeterministicMode) {
  at::globalContext().setDeterministicAlgorithms(true, false);
  const auto backend = make_cuda_backend(GetParam());
  for (const char* name : {"causal_square", "batch_full_gaps", "ragged_causal_gaps", "same_keys_ragged"}) {
    const Problem problem = make_gpu_problem(name, kGqa);
    Answers first = make_answers(problem);
    compute(*backend, problem, first);
    for (int repeat = 0; repeat < 10; ++repeat) {
      Answers again = make_answers(problem);
      compute(*backend, problem, again);
      for (std::size_t i = 0; i < first.tensors().size(); ++i) {
        ASSERT_TRUE(test::same_bits(first.tensors()[i], again.tensors()[i]))
            << name << " tensor " << i << ", " << repeat;
      }
    }
  }
}

TEST_P(GpuLibrary, CanBeCapturedInAGraphAndReplayed) {
  at::globalContext().setDeterministicAlgorithms(true, false);
  const auto backend = make_cuda_backend(GetParam());
  const Problem problem = make_gpu_problem("ragged_causal_gaps", kGqa);
  const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  const c10::cuda::CUDAStreamGuard guard(stream);
  Answers expected = make_answers(problem);
  compute(*backend, problem, expected);
  Answers captured = make_answers(problem);
  stream.synchronize();
  at::cuda::CUDAGraph graph;
  graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  compute(*backend, problem, captured);
  graph.capture_end();
  for (int replay = 0; replay < 20; ++replay) {
    test::reset(captured.sums);
    graph.replay();
    stream.synchronize();
    for (std::size_t i = 0; i < expected.tensors().size(); ++i) {
      ASSERT_TRUE(test::same_bits(expected.tensors()[i], captured.tensors()[i]))
          << "tensor " << i << ", replay " << replay;
    }
  }
}

// The step throws before it has joined the other stream again, so CUDA refuses to end the capture.
TEST_F(GpuCapture, ThatFailsLeavesTheAllocatorAsItWas) {
  const auto reserved = [] {
    c10::cuda::device_synchronize();
    cuda::release_cached_memory();
    return cuda::memory().reserved_bytes;
  };
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kByte);
  const c10::cuda::CUDAStream other = c10::cuda::getStreamFromPool();
  const std::size_t before = reserved();
  const auto step = [&] {
    at::Tensor inside = at::empty({1 << 20}, options);
    at::cuda::CUDAEvent forked;
    forked.record(c10::cuda::getCurrentCUDAStream());
    forked.block(other);
    {
      const c10::cuda::CUDAStreamGuard guard(other);
      inside.zero_();
    }
    throw std::runtime_error("the peer has failed");
  };
  EXPECT_THROW(cuda::capture(step), std::runtime_error);
  // During a capture the allocator keeps freed memory that other streams have used, so this would stay reserved.
  {
    const at::Tensor used_elsewhere = at::empty({1 << 26}, options);
    used_elsewhere.record_stream(other);
  }
  EXPECT_EQ(reserved(), before);
  at::Tensor counter = at::zeros({1}, options.dtype(at::kLong));
  const auto captured = cuda::capture([&] { counter.add_(1); });
  captured->replay();
  c10::cuda::device_synchronize();
  EXPECT_EQ(counter.item<std::int64_t>(), 1);
}

// The tile is large enough for cuDNN to cut it into parts.
TEST_P(GpuLibrary, AttendsToALargeCausalRectangle) {
  const TileShape shape{.name = "two_heads", .heads = 2, .kv_heads = 1, .head_dim_qk = 64, .head_dim_v = 64};
  const Tile tile{.m = 2100, .n = 3000, .right = 0};
  const GroupCase c{.name = "causal_wide_large",
                    .q_tokens = tile.m,
                    .k_tokens = tile.n,
                    .group = {.left = kInfiniteWindow, .right = 0, .tiles = {tile}}};
  const GroupInputs inputs = test::make_group_inputs(c, shape, at::kBFloat16, {});
  const test::GroupExpected expected = test::expect_group(c, inputs, at::kCUDA);
  const GroupInputs gpu_inputs = test::on_gpu(inputs);
  const auto backend = make_cuda_backend(GetParam());
  AttentionSums sums = make_empty_sums(gpu_inputs.operands, /*max_logit=*/true);
  attend(*backend, {c.group}, gpu_inputs.operands, sums);
  const AttentionPartial whole{.out = sums.out, .lse = sums.lse, .max_logit = sums.max_logit};
  EXPECT_EQ(test::forward_differences(c, expected, whole, at::kBFloat16), "");
  const PackedGradients gradients = test::make_sums(gpu_inputs.operands);
  attend_backward(*backend, {c.group}, gpu_inputs.operands, gpu_inputs.backward, {.sums = gradients});
  EXPECT_EQ(test::backward_differences(expected, gradients, at::kBFloat16), "");
}

TEST_P(GpuLibrary, RefusesFp32) {
  const GroupCase c = test::group_case("full_square");
  const GroupInputs inputs = test::on_gpu(test::make_group_inputs(c, kGqa, at::kFloat, {}));
  AttentionPartial partial = test::make_partial(inputs.operands);
  EXPECT_THROW(make_cuda_backend(GetParam())->forward(c.group, inputs.operands, partial), BackendUnsupported);
}

INSTANTIATE_TEST_SUITE_P(All, GpuLibrary, testing::Values(Backend::flash, Backend::cudnn),
                         [](const auto& info) { return std::string(to_string(info.param)); });

class GpuCudnn : public GpuBackendTest {};

at::Tensor without_data(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().device(at::kMeta));
}

// Building a plan inside a capture would break the capture.
TEST_F(GpuCudnn, CanBeCapturedAtOnceIfPrepared) {
  const TileShape shape{.name = "prepared", .heads = 6, .kv_heads = 3, .head_dim_qk = 96, .head_dim_v = 80};
  const Problem problem = make_gpu_problem("ragged_band_gaps", shape);
  const AttentionOperands& operands = problem.inputs.operands;
  const AttentionOperands like{.q = without_data(operands.q),
                               .k = without_data(operands.k),
                               .v = without_data(operands.v),
                               .bias = {},
                               .scale = operands.scale};
  CudnnBackend backend;
  const std::vector<TilePlan> plans{{problem.c.group}};
  backend.get_ready(plans, like, Pass::forward);
  backend.get_ready(plans, like, Pass::backward);
  const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  const c10::cuda::CUDAStreamGuard guard(stream);
  Answers answers = make_answers(problem);
  answers.partial.max_logit.reset();
  stream.synchronize();
  at::cuda::CUDAGraph graph;
  graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  EXPECT_NO_THROW(compute(backend, problem, answers));
  graph.capture_end();
}

class GpuMath : public GpuBackendTest {};

// 20000 bytes of scores make blocks of one kv head and a few rows.
TEST_F(GpuMath, HasTheScoresOfTheCpuInBlocks) {
  for (const char* name : {"full_tall", "causal_wide", "right_tall", "left_tall", "band_wide", "band_tall"}) {
    const GroupCase c = test::group_case(name);
    const GroupInputs inputs = test::make_group_inputs(c, kGqa, at::kFloat, {});
    const GroupInputs gpu_inputs = test::on_gpu(inputs);
    const Tile& tile = c.group.tiles.front();
    const TileBlock whole = whole_tile(tile, inputs.operands);
    BlockScores expected(tile, whole, inputs.operands);
    const at::Tensor by_head = expected.by_head(expected.scores());
    for (const TileBlock& block : tile_blocks(tile, inputs.operands, 20000)) {
      BlockScores scores(tile, block, gpu_inputs.operands);
      const at::Tensor part = by_head.narrow(0, block.kv_head * 4, block.kv_heads * 4).narrow(1, block.row, block.rows);
      ASSERT_TRUE(scores.by_head(scores.scores()).cpu().allclose(part, 1e-5, 1e-5))
          << name << ", kv head " << block.kv_head << ", row " << block.row;
    }
  }
}

// One causal tile of random numbers.
std::pair<AttentionOperands, TileGroup> causal_problem(std::int64_t tokens, std::int64_t heads, std::int64_t kv_heads) {
  const auto options = at::TensorOptions(at::kBFloat16).device(at::kCUDA);
  const at::Tensor k = at::randn({tokens, kv_heads, 64}, options);
  return {{.q = at::randn({tokens, heads, 64}, options), .k = k, .v = at::randn_like(k), .bias = {}, .scale = 0.125},
          {.left = -1, .right = 0, .tiles = {{.m = tokens, .n = tokens, .left = -1, .right = 0}}}};
}

// All scores at once (128 heads of 4096 x 4096 in fp32) would take 8 GiB.
TEST_F(GpuMath, BoundsItsMemory) {
  const std::int64_t tokens = 4096;
  const auto [operands, group] = causal_problem(tokens, 128, 128);
  AttentionPartial partial = test::make_partial(operands);
  namespace allocator = c10::cuda::CUDACachingAllocator;
  const auto device = c10::cuda::current_device();
  allocator::resetPeakStats(device);
  const auto before = allocator::getDeviceStats(device).allocated_bytes[0].current;
  make_cuda_backend(Backend::math)->forward(group, operands, partial);
  const auto peak = allocator::getDeviceStats(device).allocated_bytes[0].peak;
  EXPECT_LT(peak - before, std::int64_t{4} << 30U);
  EXPECT_TRUE(partial.out.isfinite().all().item<bool>());
}

// Both backends compute the largest score of this tile in several blocks.
TEST_F(GpuMath, AgreesWithFlashOnAProblemOfManyBlocks) {
  const std::int64_t tokens = 3000;
  const auto [operands, group] = causal_problem(tokens, 64, 16);
  AttentionPartial math = test::make_partial(operands);
  AttentionPartial flash = test::make_partial(operands);
  make_cuda_backend(Backend::math)->forward(group, operands, math);
  make_cuda_backend(Backend::flash)->forward(group, operands, flash);
  EXPECT_TRUE(flash.out.allclose(math.out, 1e-2, 1e-2));
  EXPECT_TRUE(flash.lse.allclose(math.lse, 1e-5, 1e-5));
  EXPECT_TRUE(flash.max_logit.allclose(math.max_logit, 1e-5, 1e-5));
}

}  // namespace
}  // namespace cp_pool
