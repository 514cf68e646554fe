#include "cp_core/context_parallel/all_gather_plans.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "cp_core/attention/math/math_backend.h"
#include "cp_core/testing/local_communicator.h"

namespace cp_pool {
namespace {

constexpr std::int64_t kTokens = 64;

AttentionProblem one_sequence(bool causal) {
  AttentionProblem problem;
  problem.causal = causal;
  problem.lengths = {.valid_q = {kTokens}, .padded_q = {kTokens}, .valid_kv = {kTokens}, .padded_kv = {kTokens}};
  return problem;
}

// The calls of each of `ranks` ranks.
std::vector<std::optional<OthersCalls>> calls_of(const AttentionProblem& problem, MathBackend::Results results,
                                                 int ranks) {
  const auto rows = [](std::int64_t count) {
    return at::empty({count, 2, 8}, at::TensorOptions(at::kMeta).dtype(at::kBFloat16));
  };
  const AttentionOperands whole{.q = rows(kTokens / ranks), .k = rows(kTokens), .v = rows(kTokens), .bias = {}};
  MathBackend backend(results);
  const std::vector<CpGroups> groups = make_local_groups(ranks);
  std::vector<std::optional<OthersCalls>> calls;
  for (int rank = 0; rank < ranks; ++rank) {
    const Context context{.problem = problem, .groups = groups[static_cast<std::size_t>(rank)], .backend = backend};
    calls.push_back(others_calls(context, others_plans(problem, ranks, rank), whole));
  }
  return calls;
}

std::int64_t key_rows_of_all(const std::vector<TilePlan>& calls) {
  std::int64_t rows = 0;
  for (const TilePlan& call : calls) rows += row_count(key_rows_of(tiles_of(call)));
  return rows;
}

// Each chunk sees the keys before it, without the rank's own. A chunk has 8 keys.
TEST(OthersCalls, HaveTheKeysBeforeEachOfTheRanksChunks) {
  const auto calls = calls_of(one_sequence(/*causal=*/true), MathBackend::Results::calls, 4);
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const auto& of_rank = calls[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(of_rank) << rank;
    EXPECT_EQ(key_rows_of_all((*of_rank)[0]), 8 * rank);
    EXPECT_EQ(key_rows_of_all((*of_rank)[1]), 8 * (7 - rank - 1));
  }
}

// A query sees keys before, between and after the rank's own two chunks.
TEST(OthersCalls, OfOneStepHaveDisjointKeys) {
  for (const auto& of_rank : calls_of(one_sequence(/*causal=*/false), MathBackend::Results::calls, 4)) {
    ASSERT_TRUE(of_rank);
    for (const std::vector<TilePlan>& step : *of_rank) EXPECT_EQ(key_rows_of_all(step), kTokens * 3 / 4);
  }
}

TEST(OthersCalls, AreNoneWithABackendThatSums) {
  for (const auto& of_rank : calls_of(one_sequence(/*causal=*/true), MathBackend::Results::sums, 4)) {
    EXPECT_FALSE(of_rank);
  }
}

}  // namespace
}  // namespace cp_pool
