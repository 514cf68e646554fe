#include "cp_core/verify/inputs.h"

#include <cstdint>

#include <ATen/ops/empty.h>

#include "cp_core/cuda/cuda_part.h"
#include "cp_core/verify/cuda_kernels.h"
#include "cp_core/verify/nearly_normal.h"

namespace cp_pool::verify {
namespace {

// The streams of numbers, one per tensor.
enum class Stream : std::uint64_t { q = 1, k = 2, v = 3, dout = 4, bias = 5, sink = 6 };

at::Tensor make_values(at::IntArrayRef shape, std::uint64_t seed, Stream stream, const at::TensorOptions& options,
                       double scale = 1) {
  at::Tensor values = at::empty(shape, options.dtype(at::kFloat));
  const std::uint64_t start = mix(mix(seed) + static_cast<std::uint64_t>(stream) * kGoldenGamma);
  if (values.is_cuda()) {
    cuda_part<VerifyKernels>().fill_nearly_normal(values, start);
  } else {
    auto* out = values.mutable_data_ptr<float>();
    const auto count = static_cast<std::uint64_t>(values.numel());
    for (std::uint64_t i = 0; i < count; ++i) out[i] = nearly_normal(start, i);
  }
  if (scale != 1) values.mul_(scale);
  return values.to(options.dtype());
}

}  // namespace

CanonicalInputs make_inputs(const CanonicalProblem& problem, const at::Device& device) {
  const auto options = at::TensorOptions(device).dtype(scalar_type_of(problem.dtype));
  const auto make = [&](std::int64_t tokens, std::int64_t heads, std::int64_t dim, Stream stream, double scale = 1) {
    return make_values({tokens, heads, dim}, problem.seed, stream, options, scale);
  };
  CanonicalInputs inputs;
  inputs.q = make(problem.tokens_q(), problem.heads, problem.head_dim_qk, Stream::q, problem.input_scale);
  inputs.k = make(problem.tokens_kv(), problem.kv_heads, problem.head_dim_qk, Stream::k, problem.input_scale);
  inputs.v = make(problem.tokens_kv(), problem.kv_heads, problem.head_dim_v, Stream::v);
  if (problem.training) inputs.dout = make(problem.tokens_q(), problem.heads, problem.head_dim_v, Stream::dout);
  if (problem.bias) inputs.bias = make_values(bias_extents(problem), problem.seed, Stream::bias, options);
  if (problem.has_sink()) {
    inputs.sink = make_values({problem.heads}, problem.seed, Stream::sink, options.dtype(at::kFloat));
  }
  if (problem.softmax == SoftmaxType::off_by_one) inputs.sink.zero_();
  return inputs;
}

}  // namespace cp_pool::verify
