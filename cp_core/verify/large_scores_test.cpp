// Tests the bounds if scores reach +-100 or are moved far from 0 (docs/numerics.md, "Large scores").
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/case_json.h"
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

CanonicalProblem low_problem(DType dtype, double offset) {
  CanonicalProblem problem = steep_problem(dtype, 1);
  problem.score_offset = offset;
  problem.softmax = SoftmaxType::vanilla;
  return problem;
}

// The bounds of results whose scores have an offset are near those of the same scores without it. In fp32, the rounding
// of a score counts, and that of -100 is 100 times that of 1.
TEST(ScoreOffset, LeavesTheBoundsNarrow) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    const auto widest = [dtype](double offset, const char* name) {
      const CanonicalProblem problem = low_problem(dtype, offset);
      return compute_expected(problem, make_inputs(problem)).tensor(name).bound.max().item<double>();
    };
    for (const char* name : {"out", "dq", "dk", "dv", "dbias"}) {
      EXPECT_LT(widest(-100, name), (dtype == DType::fp32 ? 200 : 2) * widest(0, name))
          << name << " " << to_string(dtype);
    }
  }
}

TEST(ScoreOffset, MakesTheLastDimensionATensorOfItsOwn) {
  const CanonicalProblem problem = low_problem(DType::fp32, -100);
  const Expected expected = compute_expected(problem, make_inputs(problem));
  for (const char* name : {"dq", "dk"}) {
    const ExpectedTensor& others = expected.tensor(name);
    const ExpectedTensor& last = expected.tensor(fmt::format("offset {}", name));
    const at::Tensor seen = others.bound.gt(0.0);
    EXPECT_TRUE(others.value.equal(last.value)) << "whole rows";
    EXPECT_TRUE(last.bound.gt(0.0).equal(seen));
    const auto mean = [&seen](const ExpectedTensor& of) { return of.bound.masked_select(seen).mean().item<double>(); };
    EXPECT_GT(mean(last), 5 * mean(others)) << name << ": together, the last dimension would hide the others";
  }
  EXPECT_EQ(expected.tensor("out").ceiling(), 0);
}

TEST(ScoreOffset, HasNoTensorOfItsOwnWithoutAnOffsetOrABackward) {
  const auto names = [](const CanonicalProblem& problem) {
    std::vector<std::string> all;
    for (const ExpectedTensor& of : compute_expected(problem, make_inputs(problem)).tensors) all.emplace_back(of.name);
    return all;
  };
  EXPECT_THAT(names(low_problem(DType::fp32, 0)),
              testing::ElementsAre("out", "lse", "max_logit", "dq", "dk", "dv", "dbias"));
  CanonicalProblem forward = low_problem(DType::fp32, -65536);
  forward.training = false;
  EXPECT_THAT(names(forward), testing::ElementsAre("out", "lse", "max_logit"));
}

TEST(ScoreOffset, PassesInEveryCommAndDtype) {
  for (const CommType comm : kValues<CommType>) {
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      for (const double offset : {-65536.0, -20000.0, -256.0, -100.0, 100.0, 65536.0}) {
        const bool far = std::abs(offset) > 256;
        if (far && dtype != DType::fp32) continue;
        for (const SoftmaxType softmax : kValues<SoftmaxType>) {
          Case c = test::low_case();
          c.comm = comm;
          c.cp_size = facts_of(comm).takes_size({3}) ? 3 : 6;
          c.seqlen_q = c.seqlen_kv = 24;
          c.heads = c.kv_heads = 6;
          c.dtype = dtype;
          c.softmax = softmax;
          c.score_offset = offset;
          c.training = !far;
          EXPECT_EQ(test::fault_of(test::run_on_threads(c)), "") << test::text_of(c);
        }
      }
    }
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
        c.cp_size = facts_of(comm).takes_size({3}) ? 3 : 6;
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
