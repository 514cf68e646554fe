#include "cp_core/context_parallel/prepare.h"

#include <numeric>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "cp_core/context_parallel/all_gather.h"
#include "cp_core/context_parallel/p2p.h"

namespace cp_pool {
namespace {

// Over how many ranks each side's tokens, and the heads, are split while tiles are computed.
struct Split {
  int q = 1;
  int kv = 1;
  int heads = 1;
};

std::int64_t sum(const std::vector<std::int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

bool of_each_head(BiasShape shape) {
  return shape == BiasShape::shape_1hss || shape == BiasShape::shape_bhss;
}

AttentionOperands operands_like(const AttentionProblem& problem, at::ScalarType dtype, const Split& split) {
  const auto empty = [dtype](at::IntArrayRef sizes) {
    return at::empty(sizes, at::TensorOptions(at::kMeta).dtype(dtype));
  };
  const std::int64_t q_rows = sum(problem.lengths.padded_q) / split.q;
  const std::int64_t kv_rows = sum(problem.lengths.padded_kv) / split.kv;
  const std::int64_t heads = problem.heads / split.heads;
  const std::int64_t kv_heads = problem.kv_heads / split.heads;
  AttentionOperands like{.q = empty({q_rows, heads, problem.head_dim_qk}),
                         .k = empty({kv_rows, kv_heads, problem.head_dim_qk}),
                         .v = empty({kv_rows, kv_heads, problem.head_dim_v}),
                         .bias = {},
                         .scale = problem.scale};
  if (problem.bias) {
    const std::int64_t rows = *problem.bias == BiasShape::shape_111s ? 1 : q_rows;
    like.bias = empty({1, of_each_head(*problem.bias) ? heads : 1, rows, kv_rows});
  }
  return like;
}

}  // namespace

ComingCalls coming_calls(const AttentionProblem& problem, at::ScalarType dtype, int ranks, int rank) {
  constexpr int kPair = 2;
  const auto ring = [&](int size, int own, int heads) {
    return ComingCalls{.plans = ring_plans(problem, size, own),
                       .like = operands_like(problem, dtype, {.q = size, .kv = size, .heads = heads})};
  };
  if (ranks == 1) return ring(1, 0, 1);
  switch (problem.comm) {
    case CommType::p2p:
      return ring(ranks, rank, 1);
    case CommType::all_gather: {
      const auto plans = all_gather_plans(problem, ranks, rank);
      return {.plans = {plans.begin(), plans.end()}, .like = operands_like(problem, dtype, {.q = ranks})};
    }
    case CommType::a2a:
      return ring(1, 0, ranks);
    case CommType::a2a_p2p:
      return ring(ranks / kPair, rank / kPair, kPair);
  }
  TORCH_CHECK(false, "unknown communication type");
}

std::vector<Preparation> preparations(const AttentionProblem& problem, at::ScalarType dtype, int ranks, int rank,
                                      bool training, const AttentionBackend& backend) {
  const ComingCalls calls = coming_calls(problem, dtype, ranks, rank);
  auto pieces = backend.preparations(calls.plans, calls.like, Pass::forward, problem.deterministic);
  if (!training) return pieces;
  for (auto& piece : backend.preparations(calls.plans, calls.like, Pass::backward, problem.deterministic)) {
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

}  // namespace cp_pool
