#include "cp_core/verify/reference.h"

#include <cmath>
#include <limits>
#include <utility>

#include <ATen/ops/allclose.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "cp_core/verify/baseline.h"
#include "cp_core/verify/expected.h"

namespace cp_pool::verify {
namespace {

CanonicalProblem small_problem() {
  CanonicalProblem problem;
  problem.seqlens_q = problem.seqlens_kv = {5, 0, 3};
  problem.heads = 4;
  problem.kv_heads = 2;
  problem.head_dim_qk = 6;
  problem.head_dim_v = 3;
  problem.dtype = DType::fp32;
  return problem;
}

double at3(const at::Tensor& tensor, std::int64_t a, std::int64_t b, std::int64_t c) {
  return tensor[a][b][c].item<double>();
}

// The definition for a single pair.
bool sees(const CanonicalProblem& p, std::int64_t i, std::int64_t j, std::int64_t sq, std::int64_t skv) {
  const auto diagonal = i + skv - sq;
  for (const auto& [queries, keys, type] : p.mask) {
    const std::int64_t row = i - queries.begin;
    const std::int64_t column = j - keys.begin;
    if (row < 0 || row >= queries.size() || column < 0 || column >= keys.size()) continue;
    const bool early = column - keys.size() <= row - queries.size();
    const bool late = column >= row;
    if (type == SliceType::full || (type == SliceType::causal && early) ||
        (type == SliceType::bicausal && early && late) || (type == SliceType::inverse_causal && late)) {
      return true;
    }
  }
  if (!p.mask.empty()) return false;
  if (p.causal && j > diagonal) return false;
  if (p.window[0] >= 0 && j < diagonal - p.window[0]) return false;
  return p.window[1] < 0 || j <= diagonal + p.window[1];
}

// Returns out[row, head, :] and lse of one query.
std::pair<std::vector<double>, double> attend(const CanonicalProblem& p, const CanonicalInputs& inputs, std::size_t b,
                                              std::int64_t i, std::int64_t head) {
  std::int64_t q_start = 0;
  std::int64_t kv_start = 0;
  for (std::size_t s = 0; s < b; ++s) {
    q_start += p.seqlens_q[s];
    kv_start += p.seqlens_kv[s];
  }
  const auto kv_head = head / (p.heads / p.kv_heads);
  std::vector<double> out(static_cast<std::size_t>(p.head_dim_v), 0.0);
  double total = 0;
  for (std::int64_t j = 0; j < p.seqlens_kv[b]; ++j) {
    if (!sees(p, i, j, p.seqlens_q[b], p.seqlens_kv[b])) continue;
    double score = 0;
    for (std::int64_t d = 0; d < p.head_dim_qk; ++d) {
      score += at3(inputs.q, q_start + i, head, d) * at3(inputs.k, kv_start + j, kv_head, d);
    }
    score /= std::sqrt(static_cast<double>(p.head_dim_qk));
    if (p.softcap != 0) score = p.softcap * std::tanh(score / p.softcap);
    const double weight = std::exp(score);
    total += weight;
    for (std::int64_t d = 0; d < p.head_dim_v; ++d) {
      out[static_cast<std::size_t>(d)] += weight * at3(inputs.v, kv_start + j, kv_head, d);
    }
  }
  for (double& value : out) value = total == 0 ? 0 : value / total;
  return {out, std::log(total)};
}

void expect_matches_definition(const CanonicalProblem& p) {
  const CanonicalInputs inputs = make_inputs(p);
  const Reference reference = compute_reference(p, inputs);
  std::int64_t row = 0;
  for (std::size_t b = 0; b < p.seqlens_q.size(); ++b) {
    for (std::int64_t i = 0; i < p.seqlens_q[b]; ++i, ++row) {
      for (std::int64_t head = 0; head < p.heads; ++head) {
        const auto [out, lse] = attend(p, inputs, b, i, head);
        for (std::int64_t d = 0; d < p.head_dim_v; ++d) {
          ASSERT_NEAR(at3(reference.value.out, row, head, d), out[static_cast<std::size_t>(d)], 1e-12);
        }
        const double got = at3(reference.value.lse, row, head, 0);
        if (std::isinf(lse)) {
          ASSERT_EQ(got, lse);
        } else {
          ASSERT_NEAR(got, lse, 1e-12);
        }
      }
    }
  }
}

TEST(Reference, ForwardIsTheDefinition) {
  expect_matches_definition(small_problem());
}

TEST(Reference, ForwardIsTheDefinitionUnderMasks) {
  CanonicalProblem p = small_problem();
  p.causal = true;
  expect_matches_definition(p);
  p.window = {1, -1};
  expect_matches_definition(p);
  p.causal = false;
  p.window = {0, 2};
  expect_matches_definition(p);
}

TEST(Reference, ForwardIsTheDefinitionUnderSlicesAndASoftcap) {
  CanonicalProblem p = small_problem();
  p.seqlens_kv = {4, 4, 6};
  p.softcap = 0.5;
  for (const SliceType type : {SliceType::full, SliceType::causal, SliceType::inverse_causal, SliceType::bicausal}) {
    p.mask = {{.queries = {0, 2}, .keys = {0, 3}, .type = type}, {.queries = {2, 5}, .keys = {1, 6}, .type = type}};
    expect_matches_definition(p);
  }
}

TEST(Reference, ForwardIsTheDefinitionForUnequalLengths) {
  CanonicalProblem p = small_problem();
  p.seqlens_kv = {2, 4, 6};  // sequence 0 has queries that see no key
  p.causal = true;
  expect_matches_definition(p);
}

// Compares gradients with the derivative of sum(out * dout) by each input element, from differences of the forward.
void expect_gradients_are_derivatives(const CanonicalProblem& p) {
  const CanonicalInputs inputs = make_inputs(p);
  const Results gradients = compute_reference(p, inputs).value;
  const auto loss = [&](const CanonicalInputs& at) {
    return compute_reference(p, at).value.out.mul(inputs.dout.to(at::kDouble)).sum().item<double>();
  };
  const auto check = [&](at::Tensor CanonicalInputs::* input, const at::Tensor& gradient) {
    constexpr double kStep = 1e-6;
    for (std::int64_t element = 0; element < (inputs.*input).numel(); element += 7) {
      double difference = 0;
      for (const double sign : {1.0, -1.0}) {
        CanonicalInputs moved = inputs;
        moved.*input = (inputs.*input).to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
        (moved.*input).view(-1)[element].add_(sign * kStep);
        difference += sign * loss(moved);
      }
      ASSERT_NEAR(gradient.reshape({-1})[element].item<double>(), difference / (2 * kStep), 1e-7);
    }
  };
  check(&CanonicalInputs::q, gradients.dq);
  check(&CanonicalInputs::k, gradients.dk);
  check(&CanonicalInputs::v, gradients.dv);
}

TEST(Reference, GradientsAreDerivativesOfTheForward) {
  CanonicalProblem p = small_problem();
  p.causal = true;
  expect_gradients_are_derivatives(p);
  p.softcap = 0.7;
  expect_gradients_are_derivatives(p);
}

TEST(Reference, MagnitudesBoundTheValues) {
  const CanonicalProblem p = small_problem();
  const Reference reference = compute_reference(p, make_inputs(p));
  for (const auto member : {&Results::out, &Results::dq, &Results::dk, &Results::dv}) {
    const at::Tensor slack =
        (reference.magnitude.*member).to(at::kDouble).mul(1.0001).sub((reference.value.*member).abs());
    EXPECT_TRUE(slack.ge(0.0).all().item<bool>());
  }
}

// With one query and one key, p is 1 and only the rounding of its score is added to the magnitudes.
TEST(Reference, WeighsTheRoundingOfScoresInFp32Alone) {
  CanonicalProblem p = small_problem();
  p.seqlens_q = p.seqlens_kv = {1};
  p.heads = p.kv_heads = 1;
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    p.dtype = dtype;
    const CanonicalInputs inputs = make_inputs(p);
    const Reference reference = compute_reference(p, inputs);
    const auto absolute = [](const at::Tensor& tensor) { return tensor.to(at::kDouble).abs(); };
    const double of_score =
        dtype == DType::fp32 ? 0.5 * p.scale() * absolute(inputs.q).mul(absolute(inputs.k)).sum().item<double>() : 0;
    const auto expect_near = [&](const at::Tensor& magnitude, const at::Tensor& expected) {
      EXPECT_TRUE(at::allclose(magnitude.to(at::kDouble), expected, 1e-5, 0.0)) << to_string(dtype);
    };
    expect_near(reference.magnitude.out, absolute(inputs.v).mul(1 + of_score));
    expect_near(reference.magnitude.dv, absolute(inputs.dout).mul(1 + of_score));
    expect_near(reference.magnitude.lse, reference.value.lse.abs().add(1 + of_score));
    expect_near(reference.magnitude.max_logit, reference.value.max_logit.abs().add(1 + of_score));
  }
}

TEST(Reference, IsTheSameWhenALongProblemIsCutInBlocks) {
  CanonicalProblem p = small_problem();
  p.seqlens_q = p.seqlens_kv = {1500};  // 4 heads * 1500 keys: more than one block
  p.window = {40, 0};
  p.head_dim_qk = p.head_dim_v = 2;
  const CanonicalInputs inputs = make_inputs(p);
  const Reference reference = compute_reference(p, inputs);
  const auto [out, lse] = attend(p, inputs, 0, 1499, 3);
  EXPECT_NEAR(at3(reference.value.out, 1499, 3, 1), out[1], 1e-12);
  EXPECT_NEAR(at3(reference.value.lse, 1499, 3, 0), lse, 1e-12);
}

// --- Baseline and bounds ---------------------------------------------------------------------------------------------

TEST(Baseline, IsTheReferenceButForRounding) {
  for (const auto dtype : {DType::fp32, DType::fp16, DType::bf16}) {
    CanonicalProblem p = small_problem();
    p.dtype = dtype;
    p.causal = true;
    p.seqlens_kv = {2, 0, 6};
    const CanonicalInputs inputs = make_inputs(p);
    const Results value = compute_reference(p, inputs).value;
    const Results baseline = compute_baseline(p, inputs);
    const double tolerance = 20 * unit_roundoff(dtype);
    for (const auto member : {&Results::out, &Results::lse, &Results::dq, &Results::dk, &Results::dv}) {
      EXPECT_TRUE(at::allclose((baseline.*member).to(at::kDouble), value.*member, tolerance, tolerance))
          << to_string(dtype);
    }
  }
}

TEST(Expected, BoundIsTwiceTheBaselineErrorPlusTheRoundingFloor) {
  constexpr double kFloorFp32 = 16 * 0x1p-24;
  for (const auto& [dtype, floor] :
       {std::pair(DType::bf16, 4 * 0x1p-8), std::pair(DType::fp16, 4 * 0x1p-11), std::pair(DType::fp32, kFloorFp32)}) {
    CanonicalProblem p = small_problem();
    p.dtype = dtype;
    p.softmax = SoftmaxType::learnable;
    const CanonicalInputs inputs = make_inputs(p);
    const Results magnitude = compute_reference(p, inputs).magnitude;
    const Expected expected = compute_expected(p, inputs);
    const auto expect_bound = [&](const char* name, const at::Tensor& of_rows, double times) {
      const ExpectedTensor& tensor = expected.tensor(name);
      const at::Tensor allowance = of_rows.to(at::kDouble).square().mean(-1).sqrt().mul(times);
      EXPECT_TRUE(at::allclose(tensor.bound, tensor.baseline_error.mul(2.0).add(allowance), 1e-5, 0.0))
          << to_string(dtype) << ' ' << name;
      EXPECT_TRUE(tensor.baseline_error.gt(0.0).any().item<bool>()) << to_string(dtype) << ' ' << name;
    };
    expect_bound("out", magnitude.out, floor);
    expect_bound("dq", magnitude.dq, floor);
    expect_bound("dk", magnitude.dk, floor);
    expect_bound("dv", magnitude.dv, floor);
    expect_bound("dsink", magnitude.dsink, floor);
    expect_bound("lse", magnitude.lse, kFloorFp32);
    expect_bound("max_logit", magnitude.max_logit, kFloorFp32);
  }
}

TEST(Expected, FixedTolerancesAreThoseOfTheDocumentation) {
  const auto tolerance = [](DType dtype, std::int64_t kv_heads) {
    CanonicalProblem p = small_problem();
    p.dtype = dtype;
    p.kv_heads = kv_heads;
    return fixed_tolerance(p);
  };
  EXPECT_EQ(tolerance(DType::bf16, 4), 2.5e-2);
  EXPECT_EQ(tolerance(DType::bf16, 2), 3.5e-2);
  EXPECT_EQ(tolerance(DType::fp16, 4), 5e-3);
  EXPECT_EQ(tolerance(DType::fp32, 4), 1e-4);
}

// The scores of a row without a cap are about 1, and those of 16 bits may have the tanh of a GPU, of 11 bits.
TEST(Expected, OfCappedScoresIn16BitsAllowsTheTanhOfAGpu) {
  CanonicalProblem p = small_problem();
  p.softcap = 2;
  EXPECT_LT(compute_expected(p, make_inputs(p)).tensor("lse").bound.max().item<double>(), 1e-4);
  p.dtype = DType::bf16;
  const double bound = compute_expected(p, make_inputs(p)).tensor("lse").bound.max().item<double>();
  EXPECT_GT(bound, 0x1p-12);
  EXPECT_LT(bound, 0x1p-9);
}

TEST(Expected, OfALseIsAsTightIn16BitsAsInFp32) {
  CanonicalProblem p = small_problem();
  p.dtype = DType::bf16;
  EXPECT_LT(compute_expected(p, make_inputs(p)).tensor("lse").bound.max().item<double>(), 1e-4);
}

TEST(Expected, HoldsTheFixedToleranceWhereTheBaselineIsFarBelowIt) {
  CanonicalProblem p = small_problem();
  EXPECT_EQ(compute_expected(p, make_inputs(p)).tensor("out").ceiling(), 0) << "too few elements";
  p.head_dim_v = 256;
  EXPECT_EQ(compute_expected(p, make_inputs(p)).tensor("out").ceiling(), 1e-4);
  p.dtype = DType::bf16;
  CanonicalInputs large = make_inputs(p);
  // Gradients of about 100, with elements near 0 whose rounding errors are as large as those of the others.
  large.dout.mul_(100);
  EXPECT_EQ(compute_expected(p, large).tensor("dv").ceiling(), 0);
}

TEST(Expected, RowsThatSeeNoKeyMustBeExact) {
  CanonicalProblem p = small_problem();
  p.causal = true;
  p.seqlens_kv = {2, 0, 3};
  const Expected expected = compute_expected(p, make_inputs(p));
  for (const char* name : {"out", "lse", "dq"})
    EXPECT_EQ(expected.tensor(name).bound[0].max().item<double>(), 0) << name;
}

}  // namespace
}  // namespace cp_pool::verify
