#include "worker/single_case.h"

#include <chrono>
#include <thread>
#include <vector>

#include <c10/util/intrusive_ptr.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "cases/case_groups.h"
#include "cp_core/comm/gloo/gloo_communicator.h"
#include "worker/aggregate.h"
#include "worker/caught_error.h"
#include "worker/cpu_threads.h"
#include "worker/hygiene.h"
#include "worker/rank_outcome.h"

namespace cp_pool {

namespace {

using Clock = Communicator::Clock;

constexpr std::chrono::minutes kBarrierLimit{10};  // long, because other ranks may be slow and no driver waits

RankOutcome run_rank(const Case& c, CaseRunner& runner, const c10::intrusive_ptr<c10d::Store>& store, int rank) {
  RankOutcome outcome;
  outcome.rank = rank;
  outcome.backend = runner.backend(c, at::kCPU);
  CpGroups all;
  try {
    use_threads_for(c, world_size(c));
    all = make_gloo_groups(store, "case/", rank, world_size(c));
    const int group = group_of_rank(c, rank);
    RunOptions options;
    options.world_rank = rank;
    take_report(runner.run(case_of_group(c, group), groups_of_case(all, c.group), options), outcome);
    all.cp->checked_barrier(1, kBarrierLimit);
  } catch (...) {
    const auto phase = outcome.verdict ? FailurePhase::barrier : FailurePhase::run;
    const CaughtError caught = describe_current_exception(phase);
    if (all.cp) all.cp->abort();
    outcome.failure = with_stack_trace(caught);
  }
  outcome.hygiene = measure_hygiene(rank);
  return outcome;
}

std::string describe_rank(const protocol::RankResult& rank) {
  std::string out = fmt::format("rank {}: {}", rank.rank, rank.ok ? "ok" : rank.aborted ? "aborted" : "NOT OK");
  if (!rank.output_hash.empty()) out += fmt::format(", hash {}", rank.output_hash);
  if (!rank.error.empty()) out += fmt::format("\n{}", rank.error);
  return out + "\n";
}

std::string describe_check(const Check& check) {
  return fmt::format("{:<10} {:>4} {:>10.3g} {:>10.3g} {:>10.3g} {:>10.3g} {:>10.3g}  {}{}{}\n", check.tensor,
                     check.rank, check.max_abs, check.rms, check.error, check.bound, check.baseline,
                     check.ok ? "ok" : "WRONG", check.message.empty() ? "" : ": ", check.message);
}

}  // namespace

protocol::ResultEvent run_single_case(const Case& c, CaseRunner& runner) {
  const int size = world_size(c);
  CaseSummary summary{.seq = 1, .world_size = size, .outcomes = {}, .cancelled = false, .perf = {}};
  summary.outcomes.resize(static_cast<std::size_t>(size));
  runner.reset(at::kCPU);
  if (const std::string reason = runner.skip_reason(c, at::kCPU); !reason.empty()) {
    for (int rank = 0; rank < size; ++rank) {
      RankOutcome& outcome = summary.outcomes[static_cast<std::size_t>(rank)];
      outcome.rank = rank;
      outcome.verdict = CaseOutcome::skip;
      outcome.reason = reason;
    }
    return aggregate(summary);
  }
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  {
    std::vector<std::jthread> ranks;
    ranks.reserve(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      ranks.emplace_back(
          [&, rank] { summary.outcomes[static_cast<std::size_t>(rank)] = run_rank(c, runner, store, rank); });
    }
  }
  return aggregate(summary);
}

std::string describe_result(const protocol::ResultEvent& result) {
  std::string out;
  for (const protocol::RankResult& rank : result.ranks) out += describe_rank(rank);
  if (!result.checks.empty()) {
    out += fmt::format("{:<10} {:>4} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "tensor", "rank", "max_abs", "rms",
                       "worst row", "bound", "baseline");
  }
  for (const Check& check : result.checks) out += describe_check(check);
  for (const auto& [phase, ms] : result.timings_ms) out += fmt::format("{} {:.1f} ms  ", phase, ms);
  if (!result.timings_ms.empty()) out += '\n';
  out += fmt::format("{}{}{}\n", to_string(result.outcome), result.reason.empty() ? "" : ": ", result.reason);
  return out;
}

}  // namespace cp_pool
