// Tests the bounds if scores reach +-100 (docs/numerics.md, "Large scores").
#include <cstdint>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cases/case_json.h"
#include "cases/case_names.h"
#include "cases/comm_facts.h"
#include "cp_core/testing/cases_on_threads.h"
#include "cp_core/verify/expected.h"

namespace cp_pool::verify {
namespace {

CanonicalProblem steep_problem(DType dtype, double input_scale) {
  CanonicalProblem problem;
  problem.seqlens_q = {8, 0, 5};
  problem.seqlens_kv = {9, 0, 6};
  problem.heads = problem.kv_heads = 2;
  problem.head_dim_qk = problem.head_dim_v = 64;
  problem.causal = true;
  problem.softmax = SoftmaxType::learnable;
  problem.bias = BiasShape::shape_11ss;
  problem.dtype = dtype;
  problem.input_scale = input_scale;
  return problem;
}

TEST(LargeScores, HaveFiniteBoundsAndLeaveNothingWithoutOneThatIsVisible) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const double scale : {1.5, 10.0, 30.0}) {
      SCOPED_TRACE(fmt::format("{} {}", to_string(dtype), scale));
      const CanonicalProblem problem = steep_problem(dtype, scale);
      const Expected expected = compute_expected(problem, make_inputs(problem));
      for (const ExpectedTensor& tensor : expected.tensors) {
        EXPECT_TRUE(tensor.bound.isfinite().all().item<bool>()) << tensor.name;
        EXPECT_EQ(tensor.ceiling(), 0) << tensor.name;
      }
      for (const char* name : {"out", "dq", "dk", "dv"}) {
        // No bound is below the underflow error, since p may be exp(-100) or less.
        EXPECT_TRUE(expected.tensor(name).bound.ge(0x1p-126).all().item<bool>()) << name;
      }
    }
  }
}

TEST(LargeScores, LeaveTheGradientsOfHiddenKeysExact) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    CanonicalProblem problem = steep_problem(dtype, 10);
    problem.seqlens_q = {2, 0, 1};
    problem.window = {1, 0};  // the two queries of the first sequence see the last 3 of its 9 keys
    const Expected expected = compute_expected(problem, make_inputs(problem));
    for (const char* name : {"dk", "dv"}) {
      const at::Tensor bound = expected.tensor(name).bound;
      EXPECT_TRUE(bound.narrow(0, 0, 6).eq(0.0).all().item<bool>()) << name;
      EXPECT_TRUE(bound.narrow(0, 6, 3).gt(0.0).all().item<bool>()) << name;
    }
    const ExpectedTensor& dbias = expected.tensor("dbias");
    EXPECT_EQ(dbias.untouched.logical_not().sum().item<std::int64_t>(), 6);  // three queries see two keys each
  }
}

// The bounds of lse stay narrow, so that an lse which is wrong in its sixth digit fails.
TEST(LargeScores, KeepLseSharpInEveryDtype) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    const CanonicalProblem problem = steep_problem(dtype, 10);
    const Expected expected = compute_expected(problem, make_inputs(problem));
    EXPECT_LT(expected.tensor("lse").bound.max().item<double>(), 1e-2) << to_string(dtype);
  }
}

// Correct results that bounds for ordinary scores would refuse: rows in which every p is tiny and lse is 80; a sink
// with scores of -100; out and p that fp16 cannot represent.
TEST(LargeScores, PassWhereRoundingIsUnusual) {
  for (
      const char* text : {
          R"({"dtype":"fp32","comm":"all_gather","cp_size":7,"batch":1,"seqlen_q":14,"seqlen_kv":14,"heads":2,"kv_heads":1,
               "head_dim_qk":1,"head_dim_v":1,"input_scale":30,"seed":12621514505512868763})",
          R"({"dtype":"fp32","cp_size":1,"batch":1,"seqlen_q":6,"seqlen_kv":6,"heads":3,"kv_heads":1,"head_dim_qk":4,
               "head_dim_v":1,"chunk":1,"softmax":"learnable","input_scale":30,"seed":2087693315605466394})",
          R"({"dtype":"fp32","cp_size":1,"batch":1,"seqlen_q":6,"seqlen_kv":12,"heads":4,"kv_heads":2,"head_dim_qk":3,
               "head_dim_v":1,"chunk":1,"softmax":"learnable","input_scale":30})",
          R"({"dtype":"fp16","cp_size":1,"batch":1,"seqlen_q":2,"seqlen_kv":2,"heads":32,"kv_heads":16,"head_dim_qk":1,
               "head_dim_v":12,"softmax":"learnable","input_scale":10})",
      }) {
    EXPECT_EQ(test::fault_of(test::run_on_threads(parse_case_text(text, "case"))), "") << text;
  }
}

TEST(LargeScores, PassInEveryCommAndDtype) {
  for (const CommType comm : kValues<CommType>) {
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      for (const double scale : {0.125, 3.0, 10.0, 30.0}) {
        Case c = test::steep_case();
        c.comm = comm;
        c.cp_size = facts_of(comm).takes_size(3) ? 3 : 6;
        c.heads = c.kv_heads = 6;
        c.dtype = dtype;
        c.softmax = SoftmaxType::learnable;
        c.input_scale = scale;
        EXPECT_EQ(test::fault_of(test::run_on_threads(c)), "") << test::text_of(c);
      }
    }
  }
}

}  // namespace
}  // namespace cp_pool::verify
