#include "cp_core/verify/mask_probe.h"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "cp_core/verify/reference.h"

namespace cp_pool::verify {
namespace {

CanonicalProblem long_problem(DType dtype) {
  CanonicalProblem problem;
  problem.seqlens_q = problem.seqlens_kv = {400};
  problem.heads = problem.kv_heads = 1;
  problem.head_dim_qk = problem.head_dim_v = 16;
  problem.causal = true;
  problem.dtype = dtype;
  return problem;
}

at::Tensor row_errors(const at::Tensor& value, const at::Tensor& expected) {
  return value.sub(expected).nan_to_num(0.0).square().mean(-1).sqrt();
}

// Returns how many rows are beyond the bounds of a probe of `asked`, if the results are those of the problem
// `answered`.
std::int64_t rows_beyond(const CanonicalProblem& asked, const CanonicalProblem& answered, const char* tensor) {
  const MaskProbe probe = make_mask_probe(asked);
  const auto dtype = scalar_type_of(asked.dtype);
  const Results results = compute_reference(answered, probe.inputs).value;
  const std::string name = tensor;
  const at::Tensor& value = name == "mask out" ? results.out : name == "mask lse" ? results.lse : results.dv;
  const at::Tensor rounded = name == "mask lse" ? value.to(at::kFloat) : value.to(dtype);
  const ExpectedTensor& expected = probe.expected.tensor(name);
  return row_errors(rounded.to(at::kDouble), expected.value).gt(expected.bound).sum().item<std::int64_t>();
}

class MaskProbeTensor : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, MaskProbeTensor, testing::Values("mask out", "mask lse", "mask dv"));

TEST_P(MaskProbeTensor, AcceptsTheRightMaskInEveryDtype) {
  for (const auto dtype : {DType::fp32, DType::fp16, DType::bf16}) {
    const CanonicalProblem problem = long_problem(dtype);
    EXPECT_EQ(rows_beyond(problem, problem, GetParam()), 0) << to_string(dtype);
  }
}

TEST_P(MaskProbeTensor, SeesOneKeyAmong400InBf16) {
  const CanonicalProblem problem = long_problem(DType::bf16);
  CanonicalProblem other = problem;
  other.window = {398, -1};  // only the last query loses a key: its first one
  EXPECT_GE(rows_beyond(problem, other, GetParam()), 1);
  other.window = {-1, -1};
  other.causal = false;
  EXPECT_GE(rows_beyond(problem, other, GetParam()), 350);
}

TEST(MaskProbe, KeepsWhatTheMaskDependsOn) {
  Case c;
  c.comm = CommType::a2a;
  c.cp_size = 4;
  c.heads = 16;
  c.kv_heads = 8;
  c.bias = BiasShape::shape_1hss;
  c.softmax = SoftmaxType::learnable;
  c.window = {3, 0};
  const Case probe = mask_probe_case(c, 4);
  EXPECT_EQ(probe.heads, 4);
  EXPECT_EQ(probe.kv_heads, 4);
  EXPECT_FALSE(probe.bias);
  EXPECT_EQ(probe.softmax, SoftmaxType::vanilla);
  EXPECT_EQ(probe.window, c.window);
  EXPECT_EQ(probe.comm, c.comm);
}

}  // namespace
}  // namespace cp_pool::verify
