// The backends on a GPU, against fp64 on the CPU: every kind of group, shape and dtype.
//
// Bounds, for each element: error <= c * u * magnitude, where the magnitude is the number's sum with absolute values
// (tile_reference.h). u is the unit roundoff of the dtype for out and the gradients, with c = 4: a library rounds p, ds
// and its result. For lse and max_logit, and for everything that the math backend gives, u = 2^-24 and c = 64: sums of
// some hundred fp32 terms, and an exp and log of a few ulp.
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cp_core/attention/backend_unsupported.h"
#include "cp_core/attention/cuda_backends.h"
#include "cp_core/attention/tile_group_cases.h"
#include "cp_core/attention/tile_reference.h"

namespace cp_pool {
namespace {

using test::Figure;
using test::GroupCase;
using test::GroupExpected;
using test::GroupInputs;
using test::TileShape;

// Before cuBLAS is first used: it repeats bit by bit only with a workspace of fixed size.
[[maybe_unused]] const int kCublasWorkspace = setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 1);

constexpr double kUntouchedOut = 777.0;
constexpr double kUntouchedLse = -333.0;
constexpr double kSumBefore = 5.0;  // what the gradients are added to

bool has_gpu() {
  return at::cuda::is_available();
}

bool gpu_required() {
  const char* required = std::getenv("CP_POOL_REQUIRE_GPU");
  return required != nullptr && std::string(required) == "1";
}

double unit_roundoff(at::ScalarType dtype) {
  return std::exp2(dtype == at::kBFloat16 ? -8 : dtype == at::kHalf ? -11 : -24);
}

struct Bound {
  double relative = 0;  // to the magnitude
  double absolute = 0;
};

Bound bound_of(at::ScalarType dtype) {
  return {.relative = (dtype == at::kFloat ? 64 : 4) * unit_roundoff(dtype), .absolute = 64 * std::exp2(-24)};
}
// lse and max_logit.
constexpr Bound kStatisticBound{.relative = 64.0 / (1 << 24), .absolute = 0};

std::string index_text(const at::Tensor& tensor, std::int64_t flat) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(tensor.dim()));
  for (std::size_t d = index.size(); d-- > 0;) {
    const std::int64_t size = tensor.size(static_cast<std::int64_t>(d));
    index[d] = flat % size;
    flat /= size;
  }
  return testing::PrintToString(index);
}

// Empty if every element is within its bound; else the figures.
std::string compare(const std::string& name, const at::Tensor& actual_on_gpu, const Figure& expected, Bound bound) {
  const at::Tensor actual = actual_on_gpu.cpu().to(at::kDouble).contiguous();
  const at::Tensor error = actual.sub(expected.value).abs();
  const at::Tensor allowed = expected.magnitude.mul(bound.relative).add(bound.absolute);
  // NaN is never within a bound.
  const at::Tensor bad = error.le(allowed).logical_not();
  const std::int64_t bad_count = bad.sum().item<std::int64_t>();
  if (bad_count == 0) return {};
  const at::Tensor ratio = error.div(allowed).nan_to_num(INFINITY);
  const std::int64_t worst = ratio.argmax().item<std::int64_t>();
  const auto at_worst = [worst](const at::Tensor& t) { return t.contiguous().view(-1)[worst].item<double>(); };
  return fmt::format(
      "{}: {} of {} elements off, {} of them not finite; worst at {}: {} instead of {}, error / bound {:.3g}; max "
      "error "
      "{:.3g}, rms error {:.3g}, rms value {:.3g}\n",
      name, bad_count, actual.numel(), actual.isfinite().logical_not().sum().item<std::int64_t>(),
      index_text(actual, worst), at_worst(actual), at_worst(expected.value), at_worst(ratio),
      error.max().item<double>(), error.pow(2).mean().sqrt().item<double>(),
      expected.value.pow(2).mean().sqrt().item<double>());
}

at::Tensor on_gpu(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.cuda() : tensor;
}

GroupInputs on_gpu(const GroupInputs& inputs) {
  GroupInputs result = inputs;
  result.operands.q = on_gpu(inputs.operands.q);
  result.operands.k = on_gpu(inputs.operands.k);
  result.operands.v = on_gpu(inputs.operands.v);
  result.operands.bias = on_gpu(inputs.operands.bias);
  result.backward.dout = on_gpu(inputs.backward.dout);
  result.backward.lse = on_gpu(inputs.backward.lse);
  result.backward.delta = on_gpu(inputs.backward.delta);
  result.backward.out = on_gpu(inputs.backward.out);
  return result;
}

at::Tensor fp32_like(const at::Tensor& tensor, double value) {
  return at::full(tensor.sizes(), value, tensor.options().dtype(at::kFloat));
}

AttentionPartial make_partial(const AttentionOperands& operands) {
  const std::int64_t tokens = operands.q.size(0);
  const std::int64_t heads = operands.q.size(1);
  const auto options = operands.q.options().dtype(at::kFloat);
  return {.out = at::full({tokens, heads, operands.v.size(2)}, kUntouchedOut, options),
          .lse = at::full({heads, tokens}, kUntouchedLse, options),
          .max_logit = at::full({heads}, -INFINITY, options)};
}

AttentionGradientSums make_sums(const AttentionOperands& operands) {
  AttentionGradientSums sums{.dq = fp32_like(operands.q, kSumBefore),
                             .dk = fp32_like(operands.k, kSumBefore),
                             .dv = fp32_like(operands.v, kSumBefore),
                             .dbias = {}};
  if (operands.bias.defined()) sums.dbias = fp32_like(operands.bias, kSumBefore);
  return sums;
}

// What the whole tensors shall be: the sums had a value before, and rows of no tile keep theirs.
Figure added(const Figure& figure) {
  return {.value = figure.value.add(kSumBefore), .magnitude = figure.magnitude};
}
Figure untouched_elsewhere(const Figure& figure, const at::Tensor& covered, double untouched) {
  const at::Tensor elsewhere = covered.logical_not();
  return {.value = figure.value.masked_fill(elsewhere, untouched),
          .magnitude = figure.magnitude.masked_fill(elsewhere, 0)};
}

std::string forward_differences(const GroupCase& c, const GroupExpected& expected, const AttentionPartial& partial,
                                Bound bound) {
  const at::Tensor covered = test::covered_queries(c);
  return compare("out", partial.out, untouched_elsewhere(expected.out, covered.view({-1, 1, 1}), kUntouchedOut),
                 bound) +
         compare("lse", partial.lse, untouched_elsewhere(expected.lse, covered.view({1, -1}), kUntouchedLse),
                 kStatisticBound) +
         compare("max_logit", partial.max_logit, expected.max_logit, kStatisticBound);
}

std::string backward_differences(const GroupExpected& expected, const AttentionGradientSums& sums, Bound bound) {
  std::string text = compare("dq", sums.dq, added(expected.dq), bound) +
                     compare("dk", sums.dk, added(expected.dk), bound) +
                     compare("dv", sums.dv, added(expected.dv), bound);
  if (sums.dbias.defined()) text += compare("dbias", sums.dbias, added(expected.dbias), bound);
  return text;
}

struct Setting {
  Backend backend = Backend::math;
  at::ScalarType dtype = at::kBFloat16;
  TileShape shape;
  GroupCase c;
};

std::string dtype_name(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? "bf16" : dtype == at::kHalf ? "fp16" : "fp32";
}

std::string setting_name(const Setting& s) {
  return fmt::format("{}_{}_{}_{}", to_string(s.backend), dtype_name(s.dtype), s.shape.name, s.c.name);
}

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (has_gpu()) return;
    if (gpu_required()) FAIL() << "no GPU, and CP_POOL_REQUIRE_GPU=1";
    GTEST_SKIP() << "no GPU";
  }
  void TearDown() override { at::globalContext().setDeterministicAlgorithms(false, false); }

 private:
  at::NoGradGuard no_grad_;
};

class GpuBackend : public GpuTest, public testing::WithParamInterface<Setting> {};

void expect_right_answers(const Setting& s, const at::Tensor& bias) {
  const GroupInputs inputs = test::make_group_inputs(s.c, s.shape, s.dtype, bias);
  const GroupExpected expected = test::expect_group(s.c, inputs);
  const GroupInputs gpu_inputs = on_gpu(inputs);
  const auto backend = make_cuda_backend(s.backend);
  try {
    AttentionPartial partial = make_partial(gpu_inputs.operands);
    backend->forward(s.c.group, gpu_inputs.operands, partial);
    EXPECT_EQ(forward_differences(s.c, expected, partial, bound_of(s.dtype)), "") << "forward " << setting_name(s);
  } catch (const std::exception& e) {
    ADD_FAILURE() << "forward " << setting_name(s) << ": " << e.what();
  }
  try {
    AttentionGradientSums sums = make_sums(gpu_inputs.operands);
    backend->backward(s.c.group, gpu_inputs.operands, gpu_inputs.backward, sums);
    EXPECT_EQ(backward_differences(expected, sums, bound_of(s.dtype)), "") << "backward " << setting_name(s);
  } catch (const std::exception& e) {
    ADD_FAILURE() << "backward " << setting_name(s) << ": " << e.what();
  }
}

TEST_P(GpuBackend, GivesTheAnswersOfFp64AndTouchesNoOtherRows) {
  expect_right_answers(GetParam(), {});
}

const TileShape kGqa{.name = "gqa", .heads = 8, .kv_heads = 2, .head_dim_qk = 128, .head_dim_v = 128};
const TileShape kSmall{.name = "d64", .heads = 4, .kv_heads = 4, .head_dim_qk = 64, .head_dim_v = 64};
const TileShape kMla{.name = "mla", .heads = 4, .kv_heads = 4, .head_dim_qk = 192, .head_dim_v = 128};
const TileShape kMlaGqa{.name = "mla_gqa", .heads = 4, .kv_heads = 2, .head_dim_qk = 128, .head_dim_v = 64};
const TileShape kLarge{.name = "d256", .heads = 2, .kv_heads = 2, .head_dim_qk = 256, .head_dim_v = 256};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const GroupCase& c : test::group_cases()) {
    all.push_back({Backend::math, at::kFloat, kGqa, c});
    for (const TileShape& shape : {kGqa, kSmall, kMla, kMlaGqa}) {
      all.push_back({Backend::flash, at::kBFloat16, shape, c});
    }
    all.push_back({Backend::flash, at::kHalf, kGqa, c});
  }
  for (const char* name : {"causal_square", "ragged_causal_gaps", "band_tall"}) {
    const GroupCase c = test::group_case(name);
    all.push_back({Backend::math, at::kBFloat16, kMla, c});
    all.push_back({Backend::flash, at::kBFloat16, kLarge, c});
    all.push_back({Backend::flash, at::kHalf, kMla, c});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, GpuBackend, testing::ValuesIn(settings()),
                         [](const auto& info) { return setting_name(info.param); });

class GpuBias : public GpuTest, public testing::WithParamInterface<Setting> {};

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

// A tile somewhere inside the bias.
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
    all.push_back({Backend::math, at::kFloat, kGqa, c});
    all.push_back({Backend::math, at::kFloat, kGqa, inside_bias(c)});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, GpuBias, testing::ValuesIn(bias_settings()),
                         [](const auto& info) { return setting_name(info.param); });

class GpuLibrary : public GpuTest, public testing::WithParamInterface<Backend> {};

struct Problem {
  GroupCase c;
  GroupInputs inputs;  // on the GPU
};

Problem make_gpu_problem(const std::string& name, const TileShape& shape) {
  const GroupCase c = test::group_case(name);
  return {.c = c, .inputs = on_gpu(test::make_group_inputs(c, shape, at::kBFloat16, {}))};
}

struct Answers {
  AttentionPartial partial;
  AttentionGradientSums sums;

  [[nodiscard]] std::vector<at::Tensor> tensors() const {
    return {partial.out, partial.lse, partial.max_logit, sums.dq, sums.dk, sums.dv};
  }
};

void compute(AttentionBackend& backend, const Problem& problem, Answers& answers) {
  backend.forward(problem.c.group, problem.inputs.operands, answers.partial);
  backend.backward(problem.c.group, problem.inputs.operands, problem.inputs.backward, answers.sums);
}

Answers make_answers(const Problem& problem) {
  return {.partial = make_partial(problem.inputs.operands), .sums = make_sums(problem.inputs.operands)};
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.view(at::kInt).equal(b.view(at::kInt));
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
        ASSERT_TRUE(same_bits(first.tensors()[i], again.tensors()[i])) << name << " tensor " << i << ", " << repeat;
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
    for (at::Tensor* sum : {&captured.sums.dq, &captured.sums.dk, &captured.sums.dv}) sum->fill_(kSumBefore);
    graph.replay();
    stream.synchronize();
    for (std::size_t i = 0; i < expected.tensors().size(); ++i) {
      ASSERT_TRUE(same_bits(expected.tensors()[i], captured.tensors()[i])) << "tensor " << i << ", replay " << replay;
    }
  }
}

TEST_P(GpuLibrary, TakesACarrierOfDeltaForTheOutput) {
  for (const char* name : {"causal_square", "ragged_causal_gaps"}) {
    const GroupCase c = test::group_case(name);
    const GroupInputs inputs = test::make_group_inputs(c, kGqa, at::kBFloat16, {});
    GroupInputs gpu_inputs = on_gpu(inputs);
    gpu_inputs.backward.out = delta_carrier(gpu_inputs.backward.dout, gpu_inputs.backward.delta);
    AttentionGradientSums sums = make_sums(gpu_inputs.operands);
    make_cuda_backend(GetParam())->backward(c.group, gpu_inputs.operands, gpu_inputs.backward, sums);
    EXPECT_EQ(backward_differences(test::expect_group(c, inputs), sums, bound_of(at::kBFloat16)), "") << name;
  }
}

TEST_P(GpuLibrary, RefusesFp32) {
  const GroupCase c = test::group_case("full_square");
  const GroupInputs inputs = on_gpu(test::make_group_inputs(c, kGqa, at::kFloat, {}));
  AttentionPartial partial = make_partial(inputs.operands);
  EXPECT_THROW(make_cuda_backend(GetParam())->forward(c.group, inputs.operands, partial), BackendUnsupported);
}

INSTANTIATE_TEST_SUITE_P(All, GpuLibrary, testing::Values(Backend::flash),
                         [](const auto& info) { return std::string(to_string(info.param)); });

class GpuMath : public GpuTest {};

// 128 heads of 4096 x 4096 in fp32: 8 GiB of scores at once.
TEST_F(GpuMath, BoundsItsMemory) {
  const std::int64_t tokens = 4096;
  const auto options = at::TensorOptions(at::kBFloat16).device(at::kCUDA);
  AttentionOperands operands{.q = at::randn({tokens, 128, 64}, options),
                             .k = at::randn({tokens, 128, 64}, options),
                             .v = at::randn({tokens, 128, 64}, options),
                             .bias = {},
                             .scale = 0.125};
  const TileGroup group{.left = -1, .right = 0, .tiles = {{.m = tokens, .n = tokens, .left = -1, .right = 0}}};
  AttentionPartial partial = make_partial(operands);
  namespace allocator = c10::cuda::CUDACachingAllocator;
  const auto device = c10::cuda::current_device();
  allocator::resetPeakStats(device);
  const auto before = allocator::getDeviceStats(device).allocated_bytes[0].current;
  make_cuda_backend(Backend::math)->forward(group, operands, partial);
  const auto peak = allocator::getDeviceStats(device).allocated_bytes[0].peak;
  EXPECT_LT(peak - before, std::int64_t{4} << 30U);
  EXPECT_TRUE(partial.out.isfinite().all().item<bool>());
}

// The largest score of one huge tile, in pieces, is that of the whole.
TEST_F(GpuMath, AgreesWithFlashOnAProblemOfManyBlocks) {
  const std::int64_t tokens = 3000;
  const auto options = at::TensorOptions(at::kBFloat16).device(at::kCUDA);
  AttentionOperands operands{.q = at::randn({tokens, 64, 64}, options),
                             .k = at::randn({tokens, 16, 64}, options),
                             .v = at::randn({tokens, 16, 64}, options),
                             .bias = {},
                             .scale = 0.125};
  const TileGroup group{.left = -1, .right = 0, .tiles = {{.m = tokens, .n = tokens, .left = -1, .right = 0}}};
  AttentionPartial math = make_partial(operands);
  AttentionPartial flash = make_partial(operands);
  make_cuda_backend(Backend::math)->forward(group, operands, math);
  make_cuda_backend(Backend::flash)->forward(group, operands, flash);
  EXPECT_TRUE(flash.out.allclose(math.out, 1e-2, 1e-2));
  EXPECT_TRUE(flash.lse.allclose(math.lse, 1e-5, 1e-5));
  EXPECT_TRUE(flash.max_logit.allclose(math.max_logit, 1e-6, 1e-6));
}

}  // namespace
}  // namespace cp_pool
