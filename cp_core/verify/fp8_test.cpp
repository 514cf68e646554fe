// Tests what is expected of a problem in FP8 (docs/numerics.md, "FP8").
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/verify/check_outputs.h"
#include "cp_core/verify/expected.h"
#include "cp_core/verify/mask_probe.h"

namespace cp_pool::verify {
namespace {

CanonicalProblem fp8_problem() {
  CanonicalProblem problem;
  problem.seqlens_q = problem.seqlens_kv = {96, 0, 1};
  problem.heads = problem.kv_heads = 2;
  problem.head_dim_qk = problem.head_dim_v = 64;
  problem.causal = true;
  problem.softmax = SoftmaxType::learnable;
  problem.fp8.emplace();
  return problem;
}

double largest(const at::Tensor& values) {
  return values.abs().max().item<double>();
}

double median(const at::Tensor& values) {
  return values.flatten().median().item<double>();
}

TEST(Fp8, ErrorsAreAboveThoseOf16BitsAndBoundsBelowTheValues) {
  const CanonicalProblem problem = fp8_problem();
  CanonicalProblem without = problem;
  without.fp8.reset();
  const CanonicalInputs inputs = make_inputs(problem);
  const Expected expected = compute_expected(problem, inputs);
  const Expected in_bf16 = compute_expected(without, inputs);
  for (const char* const name : {"out", "dq", "dk", "dv"}) {
    const ExpectedTensor& tensor = expected.tensor(name);
    EXPECT_GT(median(tensor.baseline_error), 3 * median(in_bf16.tensor(name).baseline_error)) << name;
    EXPECT_LT(median(tensor.bound), 0.8 * median(row_rms(tensor.value))) << name;
    EXPECT_EQ(tensor.ceiling(), 0) << name;
  }
  EXPECT_LT(largest(expected.tensor("lse").bound), 0.5);
}

// A probability of 1/2048 rounds to 0 if its scale is 1.
TEST(Fp8, DelayedScalingMayLoseTheProbabilitiesOfLongRowsInTheBackwardAlone) {
  CanonicalProblem problem = fp8_problem();
  problem.seqlens_q = {256};
  problem.seqlens_kv = {2048};
  problem.causal = false;
  problem.heads = problem.kv_heads = 1;
  const CanonicalInputs inputs = make_inputs(problem);
  const auto error_of = [&](Fp8Scaling scaling, const char* name) {
    problem.fp8->scaling = scaling;
    const ExpectedTensor tensor = compute_expected(problem, inputs).tensor(name);
    return median(tensor.baseline_error) / median(row_rms(tensor.value));
  };
  EXPECT_GT(error_of(Fp8Scaling::delayed, "dv"), 3 * error_of(Fp8Scaling::current, "dv"));
  EXPECT_LT(error_of(Fp8Scaling::delayed, "out"), 2 * error_of(Fp8Scaling::current, "out"));
  EXPECT_LT(error_of(Fp8Scaling::delayed, "dq"), 2 * error_of(Fp8Scaling::current, "dq"));
  const auto bound_of_mask = [&](Fp8Scaling scaling) {
    problem.fp8->scaling = scaling;
    return median(make_mask_probe(problem).expected.tensor("mask dv").bound);
  };
  EXPECT_GT(bound_of_mask(Fp8Scaling::delayed), 0.9 * std::sqrt(256));  // all of 256 codes may be lost
  EXPECT_LT(bound_of_mask(Fp8Scaling::current), 0.2 * std::sqrt(256));
}

TEST(Fp8, AWeightProbeExpectsTheSumOfTheWeights) {
  const CanonicalProblem problem = fp8_problem();
  const CanonicalInputs inputs = make_inputs(problem);
  const MaskProbe probe = make_weight_probe(problem, inputs, compute_expected(problem, inputs));
  CanonicalInputs ones = inputs;
  ones.v = at::full(inputs.v.sizes(), 1.0, inputs.v.options());
  EXPECT_TRUE(probe.inputs.v.equal(ones.v));
  const at::Tensor sums = compute_expected(problem, ones).tensor("out").value;
  EXPECT_TRUE(probe.expected.tensor("weights").value.allclose(sums));
}

TEST(Fp8, ScalesThatAreToldFitTheInputsOfAllRanks) {
  const CanonicalProblem problem = fp8_problem();
  const CanonicalInputs inputs = make_inputs(problem);
  Results results;
  results.fp8_scales = at::full({2, 4}, std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(check_fp8_scales(problem, inputs, results), testing::IsEmpty());
  const double amax = largest(inputs.k.to(at::kDouble));
  const auto failed = [&](int row, int column, double value) {
    results.fp8_scales[row][column] = value;
    std::vector<std::string> names;
    for (const Check& check : check_fp8_scales(problem, inputs, results)) {
      if (!check.ok) names.push_back(check.tensor);
    }
    return names;
  };
  EXPECT_THAT(failed(0, 1, amax), testing::IsEmpty());
  EXPECT_THAT(failed(1, 1, 448 / amax), testing::IsEmpty());
  EXPECT_THAT(failed(1, 1, 256 / amax), testing::IsEmpty());
  EXPECT_THAT(failed(1, 1, 449 / amax), testing::ElementsAre("scale of k"));
  EXPECT_THAT(failed(0, 1, 0.9 * amax), testing::ElementsAre("amax of k", "scale of k"));
}

}  // namespace
}  // namespace cp_pool::verify
