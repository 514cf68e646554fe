#include "cp_core/verify/inputs.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

namespace cp_pool::verify {
namespace {

CanonicalProblem problem_of(DType dtype) {
  CanonicalProblem problem;
  problem.seqlens_q = problem.seqlens_kv = {40, 0, 60};
  problem.heads = 8;
  problem.kv_heads = 4;
  problem.head_dim_qk = 32;
  problem.head_dim_v = 16;
  problem.dtype = dtype;
  problem.seed = 1234;
  return problem;
}

TEST(Inputs, HaveTheShapesOfTheProblem) {
  const CanonicalInputs inputs = make_inputs(problem_of(DType::bf16));
  EXPECT_EQ(inputs.q.sizes(), (std::vector<std::int64_t>{100, 8, 32}));
  EXPECT_EQ(inputs.k.sizes(), (std::vector<std::int64_t>{100, 4, 32}));
  EXPECT_EQ(inputs.v.sizes(), (std::vector<std::int64_t>{100, 4, 16}));
  EXPECT_EQ(inputs.dout.sizes(), (std::vector<std::int64_t>{100, 8, 16}));
  EXPECT_EQ(inputs.q.scalar_type(), at::kBFloat16);
}

TEST(Inputs, AreNearlyNormal) {
  const at::Tensor q = make_inputs(problem_of(DType::fp32)).q;
  EXPECT_NEAR(q.mean().item<float>(), 0.0, 0.03);
  EXPECT_NEAR(q.std().item<float>(), 1.0, 0.03);
}

TEST(Inputs, AreTheSameOnEveryMachine) {
  // The numbers are from an independent implementation in Python of the streams in inputs.cpp and nearly_normal.h.
  const at::Tensor q = make_inputs(problem_of(DType::fp32)).q.view(-1);
  EXPECT_FLOAT_EQ(q[0].item<float>(), -1.6988824F);
  EXPECT_FLOAT_EQ(q[12345].item<float>(), -0.013901653F);
}

TEST(Inputs, DifferBetweenTensorsAndSeeds) {
  CanonicalProblem problem = problem_of(DType::fp32);
  problem.bias = BiasShape::shape_1hss;
  problem.softmax = SoftmaxType::learnable;
  const auto numbers_of = [&problem] {
    const CanonicalInputs inputs = make_inputs(problem);
    std::vector<std::vector<float>> numbers;
    for (const at::Tensor& tensor : {inputs.q, inputs.k, inputs.v, inputs.dout, inputs.bias, inputs.sink}) {
      const auto* first = tensor.const_data_ptr<float>();
      numbers.emplace_back(first, first + problem.heads);
    }
    return numbers;
  };
  std::set<std::vector<float>> different;
  for (const std::uint64_t seed : {1234, 1235}) {
    problem.seed = seed;
    for (std::vector<float>& numbers : numbers_of()) different.insert(std::move(numbers));
  }
  EXPECT_EQ(different.size(), 2U * 6U);
}

TEST(Inputs, ScaleQueriesAndKeysBeforeTheyAreRounded) {
  CanonicalProblem problem = problem_of(DType::fp16);
  problem.bias = BiasShape::shape_1hss;
  problem.softmax = SoftmaxType::learnable;
  const CanonicalInputs plain = make_inputs(problem);
  problem.input_scale = 10;
  const CanonicalInputs scaled = make_inputs(problem);
  problem.dtype = DType::fp32;
  problem.input_scale = 1;
  const CanonicalInputs wide = make_inputs(problem);
  EXPECT_TRUE(at::equal(scaled.q, wide.q.mul(10).to(at::kHalf)));
  EXPECT_TRUE(at::equal(scaled.k, wide.k.mul(10).to(at::kHalf)));
  for (const auto tensor :
       {&CanonicalInputs::v, &CanonicalInputs::dout, &CanonicalInputs::bias, &CanonicalInputs::sink}) {
    EXPECT_TRUE(at::equal(scaled.*tensor, plain.*tensor));
  }
}

// Returns the value that the whole last dimension has; NaN if it has several.
double last_dimension_of(const at::Tensor& tensor) {
  const at::Tensor last = tensor.select(-1, -1).to(at::kDouble);
  const auto value = last.flatten()[0].item<double>();
  return last.eq(value).all().item<bool>() ? value : std::numeric_limits<double>::quiet_NaN();
}

TEST(Inputs, HoldTheOffsetOfScoresInTheLastDimensionOfQueriesAndKeys) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const double offset : {-256.0, -100.0, -1.0, 1.5, 100.0}) {
      for (const std::int64_t dim : {2, 3, 32, 192}) {
        SCOPED_TRACE(fmt::format("{} {} {}", to_string(dtype), offset, dim));
        CanonicalProblem problem = problem_of(dtype);
        problem.head_dim_qk = dim;
        problem.input_scale = 2;
        const CanonicalInputs plain = make_inputs(problem);
        problem.score_offset = offset;
        const CanonicalInputs moved = make_inputs(problem);
        const double of_q = last_dimension_of(moved.q);
        const double of_k = last_dimension_of(moved.k);
        EXPECT_EQ(of_q, std::exp2(std::round(std::log2(of_q)))) << "a power of two";
        EXPECT_NEAR(of_q * of_k * problem.scale() / offset, 1, unit_roundoff(dtype));
        EXPECT_GE(std::abs(of_k), of_q);
        EXPECT_LE(std::abs(of_k), 4 * of_q);
        EXPECT_TRUE(at::equal(moved.q.narrow(-1, 0, dim - 1), plain.q.narrow(-1, 0, dim - 1)));
        EXPECT_TRUE(at::equal(moved.k.narrow(-1, 0, dim - 1), plain.k.narrow(-1, 0, dim - 1)));
        EXPECT_TRUE(at::equal(moved.v, plain.v));
        EXPECT_TRUE(at::equal(moved.dout, plain.dout));
      }
    }
  }
}

TEST(Inputs, OfAnotherDtypeAreTheSameNumbersRounded) {
  EXPECT_TRUE(at::equal(make_inputs(problem_of(DType::fp16)).v, make_inputs(problem_of(DType::fp32)).v.to(at::kHalf)));
}

}  // namespace
}  // namespace cp_pool::verify
