#include "cp_core/context_parallel/prepare.h"

#include <numeric>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "cp_core/context_parallel/a2a.h"
#include "cp_core/context_parallel/all_gather.h"
#include "cp_core/context_parallel/ring.h"

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

// Records the calls of get_ready, and asks another backend for the matching preparations.
class Listener final : public AttentionBackend {
 public:
  Listener(const AttentionBackend& target, bool deterministic) : target_(target), deterministic_(deterministic) {}

  void forward(const TileGroup& /*group*/, const AttentionOperands& /*operands*/,
               AttentionPartial& /*partial*/) override {}
  void backward(const TileGroup& /*group*/, const AttentionOperands& /*operands*/,
                const AttentionBackwardOperands& /*backward_operands*/, AttentionGradientSums& /*sums*/) override {}
  void get_ready(std::span<const TilePlan> plans, const AttentionOperands& like, Pass pass) override {
    for (auto& piece : target_.preparations(plans, like, pass, deterministic_)) pieces.push_back(std::move(piece));
  }
  [[nodiscard]] std::int64_t head_groups(const TilePlan& plan, const AttentionOperands& like) const override {
    return target_.head_groups(plan, like);
  }

  std::vector<Preparation> pieces;

 private:
  const AttentionBackend& target_;
  bool deterministic_;
};

// One rank of the problem, for its calls of get_ready.
struct Rank {
  const AttentionProblem& problem;
  at::ScalarType dtype;
  int ranks;
  int rank;
};

void listen_to_ring(const Rank& of, const Split& split, int rank, Pass pass, Listener& listener) {
  listener.get_ready(ring_plans(of.problem, split.q, rank), operands_like(of.problem, of.dtype, split), pass);
}

void listen_to(const Rank& of, Pass pass, const AttentionBackend& backend, Listener& listener) {
  constexpr int kPair = 2;
  const auto [problem, dtype, ranks, rank] = of;
  if (ranks == 1) return listen_to_ring(of, {}, 0, pass, listener);
  switch (problem.comm) {
    case CommType::p2p:
      return listen_to_ring(of, {.q = ranks, .kv = ranks}, rank, pass, listener);
    case CommType::all_gather:
      return get_ready_for_all_gather(listener, all_gather_plans(problem, ranks, rank),
                                      operands_like(problem, dtype, {.q = ranks, .kv = ranks}),
                                      operands_like(problem, dtype, {.q = ranks}), pass);
    case CommType::a2a: {
      const auto groups = static_cast<int>(a2a_head_groups(problem, ranks, backend));
      return listen_to_ring(of, {.heads = ranks * groups}, 0, pass, listener);
    }
    case CommType::a2a_p2p:
      return listen_to_ring(of, {.q = ranks / kPair, .kv = ranks / kPair, .heads = kPair}, rank / kPair, pass,
                            listener);
  }
  TORCH_CHECK(false, "unknown communication type");
}

}  // namespace

std::vector<Preparation> preparations(const AttentionProblem& problem, at::ScalarType dtype, int ranks, int rank,
                                      bool training, const AttentionBackend& backend) {
  Listener listener(backend, problem.deterministic);
  const Rank of{.problem = problem, .dtype = dtype, .ranks = ranks, .rank = rank};
  listen_to(of, Pass::forward, backend, listener);
  if (training) listen_to(of, Pass::backward, backend, listener);
  return std::move(listener.pieces);
}

}  // namespace cp_pool
