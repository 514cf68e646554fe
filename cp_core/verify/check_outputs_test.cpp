#include "cp_core/verify/check_outputs.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ops/matmul.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/builtin/builtin_implementation.h"

namespace cp_pool::verify {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A step on one rank that has every result. The sequence has 13 tokens and one row of padding.
class CheckOutputs : public testing::Test {
 protected:
  explicit CheckOutputs(Case c = everything()) : case_(std::move(c)) {
    BuiltinImplementation own;
    const CpGroups groups = single_rank_groups();
    results_ = take_step(own, {.c = case_, .lengths = lengths_, .groups = groups, .view = view_, .device = at::kCPU},
                         make_shards(case_, inputs_, view_));
  }

  static Case everything() {
    Case c;
    c.cp_size = 1;
    c.layout = Layout::thd;
    c.batch = 1;
    c.seqlen_q = c.seqlen_kv = 16;
    c.heads = c.kv_heads = 2;
    c.head_dim_qk = c.head_dim_v = 8;
    c.softmax = SoftmaxType::learnable;
    c.bias = BiasShape::shape_1hss;
    c.max_logit = true;
    c.seqlens = {13};
    c.pad_between_seqs = true;
    return c;
  }

  // Returns "tensor: message" for each failed check.
  [[nodiscard]] std::vector<std::string> faults(const Results& results) const {
    std::vector<std::string> list;
    for (const Check& check : check_outputs(case_, expected_, view_, results)) {
      if (!check.ok) list.push_back(check.tensor + ": " + check.message);
    }
    return list;
  }

  // Changes each result in turn, except those in `but`, and expects that only the check of that result fails with the
  // message.
  template <typename Change>
  void expect_each_refused(const Change& change, const std::string& message, const std::vector<std::string>& but = {}) {
    for (const auto& [name, result] : kResults) {
      if (std::ranges::find(but, name) != but.end()) continue;
      Results changed = results_;
      changed.*result = change(results_.*result);
      EXPECT_THAT(faults(changed), ElementsAre(HasSubstr(message))) << name;
      EXPECT_THAT(faults(changed), ElementsAre(testing::StartsWith(std::string(name) + ":")));
    }
  }

  Case case_;
  SequenceLengths lengths_ = resolve_lengths(case_);
  RankView view_{case_, lengths_, 0, 1};
  CanonicalProblem problem_ = canonical_problem(case_, lengths_);
  CanonicalInputs inputs_ = make_inputs(problem_);
  Expected expected_ = compute_expected(problem_, inputs_);
  Results results_;
};

TEST_F(CheckOutputs, AcceptsTheRightResults) {
  EXPECT_EQ(check_outputs(case_, expected_, view_, results_).size(), kResults.size());
  EXPECT_THAT(faults(results_), IsEmpty());
}

TEST_F(CheckOutputs, RefusesWrongNumbersOfEveryResult) {
  expect_each_refused([](const at::Tensor& right) { return right.mul(1.2); }, "beyond the bound");
}

TEST_F(CheckOutputs, RefusesAnotherDtype) {
  expect_each_refused([](const at::Tensor& right) { return right.to(at::kDouble); }, "dtype Double instead of");
}

TEST_F(CheckOutputs, RefusesAnotherShape) {
  expect_each_refused([](const at::Tensor& right) { return right.narrow(0, 1, right.size(0) - 1); }, "shape [");
}

TEST_F(CheckOutputs, RefusesNoResult) {
  expect_each_refused([](const at::Tensor&) { return at::Tensor(); }, "no result");
}

TEST_F(CheckOutputs, RefusesNumbersAtPadding) {
  const auto at_padding = [](const at::Tensor& right) {
    const std::int64_t dim = right.size(0) == 14 ? 0 : right.dim() - 1;
    at::Tensor wrong = right.clone();
    wrong.select(dim, 13).fill_(1e-3);
    return wrong;
  };
  expect_each_refused(at_padding, "padding", {"max_logit", "dsink"});
}

TEST_F(CheckOutputs, JudgesTheLseOfTheKeysThatARankHolds) {
  Case c = case_;
  c.cp_size = 4;
  c.all_queries = true;
  c.bias.reset();
  c.dtype = DType::fp32;
  c.seqlens_kv = {3};
  const SequenceLengths lengths = resolve_lengths(c);
  const CanonicalProblem problem = canonical_problem(c, lengths);
  const CanonicalInputs inputs = make_inputs(problem);
  for (int rank = 0; rank < 4; ++rank) {
    const RankView view(c, lengths, rank, 4);
    at::Tensor scores = at::matmul(inputs.q.transpose(0, 1), inputs.k.permute({1, 2, 0})).mul_(problem.scale());
    // Ranks 0 to 2 have one key each.
    for (std::int64_t key = 0; key < 3; ++key) {
      if (key != rank) scores.select(2, key).fill_(-std::numeric_limits<float>::infinity());
    }
    Results results;
    results.part_lse = scores.logsumexp({2});
    EXPECT_TRUE(check_part_lse(problem, inputs, view, results).ok) << rank;
    if (rank == 3) {
      EXPECT_TRUE(results.part_lse.isinf().all().item<bool>()) << "an empty part";
      results.part_lse = results.part_lse.clamp_min(-1e30);
    } else {
      results.part_lse = results.part_lse.add(1e-3);
    }
    const Check wrong = check_part_lse(problem, inputs, view, results);
    EXPECT_FALSE(wrong.ok) << rank;
    EXPECT_EQ(wrong.tensor, "part_lse");
  }
}

class CheckOutputsOfLowScores : public CheckOutputs {
 protected:
  CheckOutputsOfLowScores() : CheckOutputs(low()) {}

  static Case low() {
    Case c = everything();
    c.dtype = DType::fp32;
    c.softmax = SoftmaxType::vanilla;
    c.score_offset = -100;
    return c;
  }

  // Adds a multiple of the bound to some dimensions of the first row.
  [[nodiscard]] std::vector<std::string> faults_of(at::Tensor Results::* member, std::string_view bound_of,
                                                   double times, std::int64_t first, std::int64_t count) const {
    Results changed = results_;
    changed.*member = (results_.*member).clone();
    const auto bound = expected_.tensor(bound_of).bound[0][0].item<double>();
    (changed.*member)[0][0].narrow(0, first, count).add_(times * bound);
    return faults(changed);
  }
};

TEST_F(CheckOutputsOfLowScores, AcceptsTheRightResults) {
  EXPECT_THAT(faults(results_), IsEmpty());
}

TEST_F(CheckOutputsOfLowScores, RefusesErrorsThatTheLastDimensionWouldHide) {
  const std::int64_t others = case_.head_dim_qk - 1;
  for (const auto& [member, name] : {std::pair{&Results::dq, "dq"}, std::pair{&Results::dk, "dk"}}) {
    const std::string last = fmt::format("offset {}", name);
    const auto of = [this](std::string_view tensor) { return expected_.tensor(tensor).bound[0][0].item<double>(); };
    ASSERT_GT(of(last), 4 * of(name));
    EXPECT_THAT(faults_of(member, name, 2, 0, others),
                ElementsAre(testing::StartsWith(fmt::format("{}: error beyond the bound in 1 of", name))));
    EXPECT_THAT(faults_of(member, last, 2, others, 1),
                ElementsAre(testing::StartsWith(fmt::format("{}: error beyond the bound in 1 of", last))));
    EXPECT_THAT(faults_of(member, last, 0.5, others, 1), IsEmpty());
  }
}

}  // namespace
}  // namespace cp_pool::verify
