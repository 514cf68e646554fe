// The problem that a case poses, regardless of how it is split over ranks. The inputs, the reference and the baseline
// depend on it alone. Cases that differ only in layout, communication type, backend or world size pose the same
// problem.
//
// Canonical order of tensors: [tokens, heads, dim], sequence by sequence, valid tokens only.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cases/case.h"
#include "cases/lengths.h"

namespace cp_pool::verify {

struct CanonicalProblem {
  std::vector<std::int64_t> seqlens_q;  // valid lengths, one per sequence
  std::vector<std::int64_t> seqlens_kv;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim_qk = 0;
  std::int64_t head_dim_v = 0;
  bool causal = false;
  std::array<std::int64_t, 2> window{kInfiniteWindow, kInfiniteWindow};
  std::int64_t chunk = 0;
  std::vector<MaskSlice> mask;
  double softcap = 0;
  SoftmaxType softmax = SoftmaxType::vanilla;
  std::optional<BiasShape> bias;
  DType dtype = DType::bf16;
  bool training = true;
  std::optional<Fp8> fp8;
  double input_scale = 1;   // the standard deviation of q and k
  double score_offset = 0;  // is added to every score by the last dimension of q and k (inputs.h)
  std::uint64_t seed = 0;
  // If this problem is a share of another problem's heads (head_shares.h): the number of heads of the other problem. On
  // a CPU both are computed in the same blocks of queries, and so give the same bits. 0: this is no share.
  std::int64_t whole_heads = 0;

  auto operator<=>(const CanonicalProblem&) const = default;

  [[nodiscard]] std::int64_t tokens_q() const;
  [[nodiscard]] std::int64_t tokens_kv() const;
  [[nodiscard]] double scale() const;  // 1 / sqrt(head_dim_qk)
  // Whether scores are so large that underflow and the rounding of fp32 scores matter in every dtype
  // (docs/numerics.md).
  [[nodiscard]] bool has_large_scores() const { return input_scale > 1 || has_offset(); }
  [[nodiscard]] bool has_offset() const { return score_offset != 0; }
  [[nodiscard]] bool has_sink() const { return softmax != SoftmaxType::vanilla; }
  [[nodiscard]] bool has_dsink() const { return training && softmax == SoftmaxType::learnable; }
  [[nodiscard]] bool has_dbias() const { return training && bias && *bias != BiasShape::shape_111s; }
  [[nodiscard]] bool has_fp8_backward() const { return fp8 && fp8->backward; }
  [[nodiscard]] bool has_fp8_output() const { return fp8 && fp8->output == Fp8Output::fp8; }
  [[nodiscard]] bool bias_of_each_head() const { return bias && of_each_head(*bias); }
  // Whether the bias has a gradient to which all heads contribute.
  [[nodiscard]] bool has_shared_dbias() const { return has_dbias() && !bias_of_each_head(); }
};

// The extents of a bias: [batch or 1, heads or 1, rows or 1, columns]. Rows and columns are positions in a sequence, up
// to the largest valid length.
std::array<std::int64_t, 4> bias_extents(const CanonicalProblem& problem);

CanonicalProblem canonical_problem(const Case& c, const SequenceLengths& lengths);

at::ScalarType scalar_type_of(DType dtype);

// The unit roundoff of the dtype with round to nearest: half the distance between 1 and the next larger number.
double unit_roundoff(DType dtype);
inline constexpr double kUnitRoundoffFp32 = 0x1p-24;
inline constexpr double kUnitRoundoffE4m3 = 0x1p-4;
inline constexpr double kUnitRoundoffE5m2 = 0x1p-3;

// The largest absolute error of rounding a number that is too small for the dtype, or of flushing it to zero.
double underflow_error(DType dtype);

// The relative error of a tanh of scores, in units of c * u of fp32: 2^-20 in fp32. With 16 bits, kernels take the tanh
// of the GPU (tanh.approx.f32 of PTX), whose error is up to 2^-11.
double tanh_error(DType dtype);

// c * u of the bound (docs/numerics.md).
double floor_factor(DType dtype);
// The same for the results of a problem in FP8 whose rows have so many elements.
double fp8_floor_factor(const Fp8& fp8, bool gradient, std::int64_t elements);

// bool [rows, seqlen_kv]: which keys the queries first_row .. first_row + rows - 1 of a sequence see, by the definition
// (docs/definitions.md). It uses nothing of mask.h, so that a fault there cannot hide here.
at::Tensor visible_keys(const CanonicalProblem& problem, std::int64_t seqlen_q, std::int64_t seqlen_kv,
                        std::int64_t first_row, std::int64_t rows, const at::Device& device = at::kCPU);

}  // namespace cp_pool::verify
