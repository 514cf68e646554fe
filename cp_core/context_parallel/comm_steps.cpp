#include "cp_core/context_parallel/comm_steps.h"

#include <array>
#include <cstddef>
#include <numeric>
#include <stdexcept>
#include <utility>

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "cases/comm_facts.h"

namespace cp_pool {
namespace {

std::int64_t total(const std::vector<std::int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

// Collects the preparations that another backend has for each call of get_ready. It divides heads into groups as that
// backend does.
class Listener final : public FastBackend {
 public:
  Listener(const FastBackend& target, bool deterministic) : target_(target), deterministic_(deterministic) {}

  void get_ready(std::span<const TilePlan> plans, const AttentionOperands& like, Pass pass) override {
    for (auto& piece : target_.preparations(plans, like, pass, deterministic_)) pieces.push_back(std::move(piece));
  }
  [[nodiscard]] std::int64_t head_groups(const TilePlan& plan, const AttentionOperands& like) const override {
    return target_.head_groups(plan, like);
  }
  [[nodiscard]] std::int64_t pipeline_groups(const Pipeline& of) const override { return target_.pipeline_groups(of); }

  std::vector<Preparation> pieces;

 private:
  const FastBackend& target_;
  bool deterministic_;
};

}  // namespace

AttentionOperands FutureRank::operands_like(const Split& split) const {
  const auto empty = [this](at::IntArrayRef sizes) {
    return at::empty(sizes, at::TensorOptions(at::kMeta).dtype(dtype));
  };
  const std::int64_t q_rows = total(problem.lengths.padded_q) / split.q;
  const std::int64_t kv_rows = total(problem.lengths.padded_kv) / split.kv;
  const HeadShare share = head_share(problem.heads, problem.kv_heads, split.heads, rank % split.heads);
  const std::int64_t heads = share.count / split.head_groups;
  const std::int64_t kv_heads = static_cast<std::int64_t>(share.kv.size()) / split.head_groups;
  AttentionOperands like{.q = empty({q_rows, heads, problem.head_dim_qk}),
                         .k = empty({kv_rows, kv_heads, problem.head_dim_qk}),
                         .v = empty({kv_rows, kv_heads, problem.head_dim_v}),
                         .bias = {},
                         .scale = scale_of(problem),
                         .softcap = problem.softcap};
  if (problem.bias) {
    const std::int64_t rows = *problem.bias == BiasShape::shape_111s ? 1 : q_rows;
    like.bias = empty({1, of_each_head(*problem.bias) ? heads : 1, rows, kv_rows});
  }
  return like;
}

const CommSteps& steps_of(const AttentionProblem& problem, int ranks) {
  static const std::array all{
#define CP_POOL_COMM_TYPE(identifier, name) identifier##_steps(),
#include "cases/comm_types.def"
#undef CP_POOL_COMM_TYPE
  };
  const CommType type = ranks == 1 ? CommType::p2p : problem.comm;
  const CommFacts& facts = facts_of(type);
  if (!facts.takes_size({.all = ranks, .inner = problem.inner})) {
    throw std::invalid_argument(
        fmt::format("{} needs {}, but there are {} ranks", to_string(type), facts.sizes, ranks));
  }
  return all.at(static_cast<std::size_t>(type));
}

std::vector<Preparation> preparations(const AttentionProblem& problem, at::ScalarType dtype, int ranks, int rank,
                                      const FastBackend& backend) {
  Listener listener(backend, problem.deterministic);
  const FutureRank future{.problem = problem, .dtype = dtype, .ranks = ranks, .rank = rank};
  const CommSteps& steps = steps_of(problem, ranks);
  steps.get_ready(future, Pass::forward, listener);
  if (problem.training) steps.get_ready(future, Pass::backward, listener);
  return std::move(listener.pieces);
}

}  // namespace cp_pool
