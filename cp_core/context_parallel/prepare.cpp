#include "cp_core/context_parallel/prepare.h"

#include <utility>

#include "cp_core/context_parallel/comm_steps.h"

namespace cp_pool {
namespace {

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

std::vector<Preparation> preparations(const AttentionProblem& problem, at::ScalarType dtype, int ranks, int rank,
                                      bool training, const FastBackend& backend) {
  Listener listener(backend, problem.deterministic);
  const FutureRank future{.problem = problem, .dtype = dtype, .ranks = ranks, .rank = rank};
  const CommSteps& steps = steps_of(problem, ranks);
  steps.get_ready(future, Pass::forward, listener);
  if (training) steps.get_ready(future, Pass::backward, listener);
  return std::move(listener.pieces);
}

}  // namespace cp_pool
