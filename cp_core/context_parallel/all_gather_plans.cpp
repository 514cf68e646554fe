#include "cp_core/context_parallel/all_gather_plans.h"

#include <algorithm>
#include <utility>

#include "cp_core/mutation.h"

namespace cp_pool {
namespace {

// Returns the positions of these runs that are in none of `taken`.
std::vector<Run> runs_without(const std::vector<Run>& runs, std::vector<Run> taken) {
  std::ranges::sort(taken, {}, [](const Run& run) { return std::pair(run.sequence, run.begin); });
  std::vector<Run> left;
  for (const Run& run : runs) {
    std::int64_t position = run.begin;
    const auto append_until = [&](std::int64_t end) {
      if (end > position) {
        left.push_back(
            {.sequence = run.sequence, .begin = position, .end = end, .row = run.row + position - run.begin});
      }
    };
    for (const Run& other : taken) {
      if (other.sequence != run.sequence) continue;
      append_until(other.begin);
      position = other.end;
    }
    append_until(run.end);
  }
  return left;
}

}  // namespace

OthersPlans others_plans(const AttentionProblem& problem, int ranks, int rank) {
  const std::vector<Run> own = local_runs(problem.lengths.padded_kv, ranks, rank);
  const std::vector<Run> others = runs_without(whole_runs(problem.lengths.padded_kv), own);
  const auto step = [&](int half) {
    return make_plan(problem, local_half_runs(problem.lengths.padded_q, ranks, rank, half), others);
  };
  return {step(0), step(CP_MUTATE(all_gather_step_repeated, 1, 0))};
}

AllGatherPlans all_gather_plans(const AttentionProblem& problem, int ranks, int rank) {
  auto [first, second] = others_plans(problem, ranks, rank);
  return {make_plan(problem, local_runs(problem.lengths.padded_q, ranks, rank),
                    local_runs(problem.lengths.padded_kv, ranks, rank)),
          std::move(first), std::move(second)};
}

std::optional<OthersCalls> others_calls(const Context& context, const OthersPlans& plans,
                                        const AttentionOperands& whole) {
  if (!context.backend.contributes_once({}, whole)) return std::nullopt;
  OthersCalls calls;
  std::int64_t rows = 0;
  for (std::size_t step = 0; step < plans.size(); ++step) {
    for (const TileGroup& group : plans[step]) {
      for (TileGroup& part : context.backend.parts(group, whole)) {
        TilePlan call{std::move(part)};
        if (!context.backend.contributes_once(call, whole)) return std::nullopt;
        rows += row_count(key_rows_of(tiles_of(call)));
        calls[step].push_back(std::move(call));
      }
    }
  }
  const std::int64_t others = whole.k.size(0) - whole.k.size(0) / context.groups.cp->size();
  const auto call_bytes = static_cast<std::int64_t>(whole.q.element_size());
  constexpr std::int64_t kSumBytes = 4;
  if (rows * call_bytes > others * kSumBytes) return std::nullopt;
  return calls;
}

}  // namespace cp_pool
