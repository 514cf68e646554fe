#include "cp_core/context_parallel/comm_steps.h"

#include <deque>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/comm_facts.h"
#include "cp_core/attention/math/math_backend.h"
#include "cp_core/testing/dense_attention.h"

namespace cp_pool::test {
namespace {

// The parameters of a call of get_ready that matter, as text.
std::string describe(std::span<const TilePlan> plans, const AttentionOperands& like, Pass pass) {
  std::string text{name_of(pass)};
  for (const at::Tensor& tensor : {like.q, like.k, like.v}) {
    text += fmt::format(" {}x{}x{}", tensor.size(0), tensor.size(1), tensor.size(2));
  }
  text += fmt::format(" {} scale {}", c10::toString(like.q.scalar_type()), like.scale);
  if (like.bias.defined()) text += fmt::format(" bias of {}, rows {}", like.bias.size(1), like.bias.size(2) > 1);
  for (const TilePlan& plan : plans) {
    text += "\n ";
    for (const TileGroup& group : plan) {
      for (const Tile& t : group.tiles) {
        text += fmt::format(" {}+{}x{}+{}[{},{}]", t.q_row, t.m, t.k_row, t.n, t.left, t.right);
      }
    }
  }
  return text;
}

// Computes as the math backend does in place of a library, and records the calls of get_ready.
class ListeningBackend final : public AttentionBackend {
 public:
  void forward(const TileGroup& group, const AttentionOperands& operands, AttentionPartial& partial) override {
    math_.forward(group, operands, partial);
  }
  void backward(const TileGroup& group, const AttentionOperands& operands,
                const AttentionBackwardOperands& backward_operands, PendingSums& pending) override {
    math_.backward(group, operands, backward_operands, pending);
  }

  std::vector<CalledForward> forward_calls(const TileGroup& part, const AttentionOperands& operands) override {
    return math_.forward_calls(part, operands);
  }
  [[nodiscard]] bool contributes_once(const TilePlan& plan, const AttentionOperands& like) const override {
    return math_.contributes_once(plan, like);
  }
  PackedGradients called_gradients(const TilePlan& plan, const AttentionOperands& operands,
                                   const AttentionBackwardOperands& backward_operands) override {
    return math_.called_gradients(plan, operands, backward_operands);
  }
  [[nodiscard]] std::int64_t head_groups(const TilePlan& plan, const AttentionOperands& like) const override {
    return math_.head_groups(plan, like);
  }
  void gradients_of_heads(const TilePlan& plan, const AttentionOperands& operands,
                          const AttentionBackwardOperands& backward_operands, const PackedGradients& results) override {
    math_.gradients_of_heads(plan, operands, backward_operands, results);
  }
  [[nodiscard]] std::int64_t pipeline_groups(const Pipeline& of) const override { return math_.pipeline_groups(of); }
  void get_ready(std::span<const TilePlan> plans, const AttentionOperands& like, Pass pass) override {
    // Groups of heads of one size make equal calls one after the other, which count once.
    const std::string text = describe(plans, like, pass);
    if (heard.empty() || heard.back() != text) heard.push_back(text);
  }
  [[nodiscard]] std::vector<Preparation> preparations(std::span<const TilePlan> plans, const AttentionOperands& like,
                                                      Pass pass, bool deterministic) const override {
    EXPECT_TRUE(like.q.is_meta());
    return {[this, deterministic, text = describe(plans, like, pass)] {
      prepared.push_back(text);
      modes.push_back(deterministic);
    }};
  }

  std::vector<std::string> heard;
  mutable std::vector<std::string> prepared;
  mutable std::vector<bool> modes;

 private:
  MathBackend math_{MathBackend::Results::calls};
};

AttentionProblem some_problem(CommType comm, Layout layout) {
  AttentionProblem problem;
  problem.comm = comm;
  problem.layout = layout;
  problem.heads = 8;
  problem.kv_heads = 4;
  problem.head_dim_qk = 8;
  problem.head_dim_v = 4;
  problem.causal = true;
  const bool thd = layout == Layout::thd;
  problem.lengths.valid_q = thd ? std::vector<std::int64_t>{13, 0, 3, 32} : std::vector<std::int64_t>{32, 32};
  problem.lengths.padded_q = thd ? std::vector<std::int64_t>{16, 0, 8, 32} : problem.lengths.valid_q;
  problem.lengths.valid_kv = problem.lengths.valid_q;
  problem.lengths.padded_kv = problem.lengths.padded_q;
  return problem;
}

void expect_prepared_is_asked(const AttentionProblem& problem, int ranks) {
  std::deque<ListeningBackend> backends(static_cast<std::size_t>(ranks));
  const auto of = [&](int rank) -> ListeningBackend& { return backends[static_cast<std::size_t>(rank)]; };
  (void)run_on_ranks(problem, make_inputs(problem, at::kBFloat16, 7), ranks, {.backend_of = of});
  for (int rank = 0; rank < ranks; ++rank) {
    ListeningBackend& backend = of(rank);
    ASSERT_GE(backend.heard.size(), 2U);
    for (const Preparation& piece : preparations(problem, at::kBFloat16, ranks, rank, backend)) piece();
    EXPECT_EQ(backend.prepared, backend.heard) << to_string(problem.comm) << ", rank " << rank << " of " << ranks;
  }
}

class Prepare : public testing::TestWithParam<CommType> {};

TEST_P(Prepare, ListsWhatTheRanksWillAskFor) {
  for (const Layout layout : {Layout::bshd, Layout::thd}) {
    for (const int ranks : {1, 2, 4}) {
      if (!facts_of(GetParam()).takes_size({ranks})) continue;
      expect_prepared_is_asked(some_problem(GetParam(), layout), ranks);
    }
  }
}

TEST_P(Prepare, KnowsTheHeadsOfABias) {
  for (const BiasShape shape : {BiasShape::shape_1hss, BiasShape::shape_b1ss, BiasShape::shape_111s}) {
    AttentionProblem problem = some_problem(GetParam(), Layout::bshd);
    problem.bias = shape;
    expect_prepared_is_asked(problem, 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Prepare, testing::ValuesIn(kValues<CommType>),
                         [](const auto& info) { return fmt::format("type{}", static_cast<int>(info.param)); });

TEST(Preparations, KnowTheInnerGroups) {
  AttentionProblem problem = some_problem(CommType::a2a_p2p, Layout::bshd);
  problem.inner = 4;
  expect_prepared_is_asked(problem, 8);
}

TEST(Preparations, AreOfTheForwardAloneWithoutTraining) {
  const ListeningBackend backend;
  AttentionProblem problem = some_problem(CommType::p2p, Layout::bshd);
  problem.training = false;
  EXPECT_EQ(preparations(problem, at::kBFloat16, 2, 0, backend).size(), 1U);
}

// The deterministic mode is that of the problem, whatever mode the case has that runs meanwhile.
TEST(Preparations, TakeTheModeFromTheProblem) {
  const ListeningBackend backend;
  AttentionProblem problem = some_problem(CommType::p2p, Layout::bshd);
  problem.deterministic = true;
  for (const Preparation& piece : preparations(problem, at::kBFloat16, 2, 1, backend)) piece();
  EXPECT_THAT(backend.modes, testing::AllOf(testing::SizeIs(testing::Ge(2)), testing::Each(true)));
}

}  // namespace
}  // namespace cp_pool::test
