#include "cp_core/verify/inputs.h"

#include <cmath>
#include <cstdint>

#include <ATen/ops/empty.h>

#include "cp_core/cuda/cuda_part.h"
#include "cp_core/verify/cuda_kernels.h"
#include "cp_core/verify/nearly_normal.h"

namespace cp_pool::verify {
namespace {

// The streams of numbers, one per tensor.
enum class Stream : std::uint64_t { q = 1, k = 2, v = 3, dout = 4, bias = 5, sink = 6 };

// Returns fp32 values.
at::Tensor make_values(at::IntArrayRef shape, std::uint64_t seed, Stream stream, const at::Device& device) {
  at::Tensor values = at::empty(shape, at::TensorOptions(device).dtype(at::kFloat));
  const std::uint64_t start = mix(mix(seed) + static_cast<std::uint64_t>(stream) * kGoldenGamma);
  if (values.is_cuda()) {
    cuda_part<VerifyKernels>().fill_nearly_normal(values, start);
  } else {
    auto* out = values.mutable_data_ptr<float>();
    const auto count = static_cast<std::uint64_t>(values.numel());
    for (std::uint64_t i = 0; i < count; ++i) out[i] = nearly_normal(start, i);
  }
  return values;
}

// The offset of the scores before they are scaled.
double raw_offset(const CanonicalProblem& problem) {
  return problem.score_offset * std::sqrt(static_cast<double>(problem.head_dim_qk));
}

double offset_of_q(const CanonicalProblem& problem) {
  // floor(e / 2) for the binary exponent e of the offset, which is exact in any language.
  return std::ldexp(1.0, static_cast<int>(std::floor(std::ilogb(raw_offset(problem)) / 2.0)));
}

double offset_of_k(const CanonicalProblem& problem) {
  return raw_offset(problem) / offset_of_q(problem);
}

}  // namespace

CanonicalInputs make_inputs(const CanonicalProblem& problem, const at::Device& device) {
  const auto values = [&](at::IntArrayRef shape, Stream stream) {
    return make_values(shape, problem.seed, stream, device);
  };
  const auto rounded = [&](const at::Tensor& tensor) { return tensor.to(scalar_type_of(problem.dtype)); };
  const auto scaled = [&](std::int64_t tokens, std::int64_t heads, Stream stream,
                          double (*offset)(const CanonicalProblem&)) {
    const at::Tensor tensor = values({tokens, heads, problem.head_dim_qk}, stream);
    if (problem.input_scale != 1) tensor.mul_(problem.input_scale);
    if (problem.has_offset()) tensor.select(-1, -1).fill_(offset(problem));
    return rounded(tensor);
  };
  CanonicalInputs inputs;
  inputs.q = scaled(problem.tokens_q(), problem.heads, Stream::q, offset_of_q);
  inputs.k = scaled(problem.tokens_kv(), problem.kv_heads, Stream::k, offset_of_k);
  inputs.v = rounded(values({problem.tokens_kv(), problem.kv_heads, problem.head_dim_v}, Stream::v));
  if (problem.training) {
    inputs.dout = rounded(values({problem.tokens_q(), problem.heads, problem.head_dim_v}, Stream::dout));
  }
  if (problem.bias) inputs.bias = rounded(values(bias_extents(problem), Stream::bias));
  if (problem.has_sink()) inputs.sink = values({problem.heads}, Stream::sink);
  if (problem.softmax == SoftmaxType::off_by_one) inputs.sink.zero_();
  return inputs;
}

}  // namespace cp_pool::verify
