#include "cp_core/verify/inputs.h"

#include <cstdint>

#include <ATen/ops/empty.h>

namespace cp_pool::verify {
namespace {

// Streams of numbers: one a tensor.
enum class Stream : std::uint64_t { q = 1, k = 2, v = 3, dout = 4, bias = 5, sink = 6 };

// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
constexpr std::uint64_t kGoldenGamma = 0x9E3779B97F4A7C15;

std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EB;
  return z ^ (z >> 31U);
}

at::Tensor nearly_normal(at::IntArrayRef shape, std::uint64_t seed, Stream stream, at::ScalarType dtype) {
  at::Tensor values = at::empty(shape, at::kFloat);
  auto* out = values.mutable_data_ptr<float>();
  const std::uint64_t start = mix(mix(seed) + static_cast<std::uint64_t>(stream) * kGoldenGamma);
  const auto count = static_cast<std::uint64_t>(values.numel());
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = mix(start + i * kGoldenGamma);
    const auto lanes = (bits & 0xFFFF) + ((bits >> 16U) & 0xFFFF) + ((bits >> 32U) & 0xFFFF) + (bits >> 48U);
    // Four lanes, each uniform in 0..65535: mean 131070, standard deviation 65536 / sqrt(3).
    const auto centred = static_cast<std::int32_t>(lanes) - 131070;
    constexpr float kOverDeviation = 1.7320508F / 65536.0F;
    out[i] = static_cast<float>(centred) * kOverDeviation;
  }
  return values.to(dtype);
}

}  // namespace

CanonicalInputs make_inputs(const CanonicalProblem& problem) {
  const auto dtype = scalar_type_of(problem.dtype);
  const auto make = [&](std::int64_t tokens, std::int64_t heads, std::int64_t dim, Stream stream) {
    return nearly_normal({tokens, heads, dim}, problem.seed, stream, dtype);
  };
  CanonicalInputs inputs;
  inputs.q = make(problem.tokens_q(), problem.heads, problem.head_dim_qk, Stream::q);
  inputs.k = make(problem.tokens_kv(), problem.kv_heads, problem.head_dim_qk, Stream::k);
  inputs.v = make(problem.tokens_kv(), problem.kv_heads, problem.head_dim_v, Stream::v);
  if (problem.training) inputs.dout = make(problem.tokens_q(), problem.heads, problem.head_dim_v, Stream::dout);
  if (problem.bias) inputs.bias = nearly_normal(bias_extents(problem), problem.seed, Stream::bias, dtype);
  if (problem.has_sink()) inputs.sink = nearly_normal({problem.heads}, problem.seed, Stream::sink, at::kFloat);
  if (problem.softmax == SoftmaxType::off_by_one) inputs.sink.zero_();
  return inputs;
}

}  // namespace cp_pool::verify
