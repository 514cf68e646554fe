#include "cp_core/verify/canonical.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include <ATen/ops/arange.h>
#include <ATen/ops/div.h>
#include <ATen/ops/ones.h>

namespace cp_pool::verify {

std::int64_t CanonicalProblem::tokens_q() const {
  return std::accumulate(seqlens_q.begin(), seqlens_q.end(), std::int64_t{0});
}

std::int64_t CanonicalProblem::tokens_kv() const {
  return std::accumulate(seqlens_kv.begin(), seqlens_kv.end(), std::int64_t{0});
}

double CanonicalProblem::scale() const {
  return 1.0 / std::sqrt(static_cast<double>(head_dim_qk));
}

std::array<std::int64_t, 4> bias_extents(const CanonicalProblem& problem) {
  const auto batch = static_cast<std::int64_t>(problem.seqlens_q.size());
  const std::int64_t rows = std::ranges::max(problem.seqlens_q);
  const std::int64_t columns = std::ranges::max(problem.seqlens_kv);
  switch (problem.bias.value()) {
    case BiasShape::shape_1hss:
      return {1, problem.heads, rows, columns};
    case BiasShape::shape_bhss:
      return {batch, problem.heads, rows, columns};
    case BiasShape::shape_b1ss:
      return {batch, 1, rows, columns};
    case BiasShape::shape_11ss:
      return {1, 1, rows, columns};
    case BiasShape::shape_111s:
      return {1, 1, 1, columns};
  }
  throw std::logic_error("unknown bias shape");
}

CanonicalProblem canonical_problem(const Case& c, const SequenceLengths& lengths) {
  return {.seqlens_q = lengths.valid_q,
          .seqlens_kv = lengths.valid_kv,
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .head_dim_qk = c.head_dim_qk,
          .head_dim_v = c.head_dim_v,
          .causal = c.causal,
          .window = c.window,
          .chunk = c.chunk,
          .mask = c.mask,
          .softcap = c.softcap,
          .softmax = c.softmax,
          .bias = c.bias,
          .dtype = c.dtype,
          .training = c.training,
          .fp8 = c.fp8,
          .input_scale = c.input_scale,
          .score_offset = c.score_offset,
          .seed = c.seed};
}

at::ScalarType scalar_type_of(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return at::kFloat;
    case DType::bf16:
      return at::kBFloat16;
    case DType::fp16:
      return at::kHalf;
  }
  throw std::logic_error("unknown dtype");
}

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return kUnitRoundoffFp32;
    case DType::bf16:
      return 0x1p-8;
    case DType::fp16:
      return 0x1p-11;
  }
  throw std::logic_error("unknown dtype");
}

double underflow_error(DType dtype) {
  // In fp16, subnormal numbers occur, and the error is half their distance. In the other dtypes it is the smallest
  // normal number, since libraries may flush subnormal numbers.
  return dtype == DType::fp16 ? 0x1p-25 : 0x1p-126;
}

double tanh_error(DType dtype) {
  return dtype == DType::fp32 ? 1.0 : 0x1p-11 / floor_factor(DType::fp32);
}

double floor_factor(DType dtype) {
  // The factors c allow for rounding beyond twice the baseline's own error.
  constexpr double kFloor16Bit = 4;
  constexpr double kFloorFp32 = 16;
  return (dtype == DType::fp32 ? kFloorFp32 : kFloor16Bit) * unit_roundoff(dtype);
}

double fp8_floor_factor(const Fp8& fp8, bool gradient, std::int64_t elements) {
  const double floor = 1 + 2 / std::sqrt(static_cast<double>(elements));  // an error of few elements varies more
  return floor * (gradient && fp8.backward ? kUnitRoundoffE5m2 : kUnitRoundoffE4m3);
}

namespace {

// bool, shaped like i and j together: which pairs of positions the slice shows.
at::Tensor shown_by(const MaskSlice& slice, const at::Tensor& i, const at::Tensor& j) {
  const auto& [queries, keys, type] = slice;
  at::Tensor shown =
      i.ge(queries.begin).logical_and(i.lt(queries.end)).logical_and(j.ge(keys.begin)).logical_and(j.lt(keys.end));
  const bool bicausal = type == SliceType::bicausal;
  if (type == SliceType::causal || bicausal) shown.logical_and_(j.sub(keys.end).le(i.sub(queries.end)));
  if (type == SliceType::inverse_causal || bicausal) shown.logical_and_(j.sub(keys.begin).ge(i.sub(queries.begin)));
  return shown;
}

}  // namespace

at::Tensor visible_keys(const CanonicalProblem& problem, std::int64_t seqlen_q, std::int64_t seqlen_kv,
                        std::int64_t first_row, std::int64_t rows, const at::Device& device) {
  // i' aligns queries and keys at the bottom right: the last query is at the last key.
  const at::Tensor i = at::arange(first_row, first_row + rows, at::TensorOptions(device).dtype(at::kLong))
                           .add(seqlen_kv - seqlen_q)
                           .unsqueeze(1);
  const at::Tensor j = at::arange(seqlen_kv, at::TensorOptions(device).dtype(at::kLong)).unsqueeze(0);
  at::Tensor visible = at::ones({rows, seqlen_kv}, at::TensorOptions(device).dtype(at::kBool));
  if (!problem.mask.empty()) {
    visible.zero_();
    const at::Tensor position = i.sub(seqlen_kv - seqlen_q);
    for (const MaskSlice& slice : problem.mask) visible.logical_or_(shown_by(slice, position, j));
  }
  const auto [left, right] = problem.window;
  if (left >= 0) visible.logical_and_(i.sub(j).le(left));
  if (right >= 0) visible.logical_and_(j.sub(i).le(right));
  if (problem.causal) visible.logical_and_(j.le(i));
  if (problem.chunk > 0) {
    visible.logical_and_(at::div(i, problem.chunk, "floor").eq(at::div(j, problem.chunk, "floor")));
  }
  return visible;
}

}  // namespace cp_pool::verify
