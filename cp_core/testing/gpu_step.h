// Steps of attention on GPU ranks that tests can run repeatedly.
#pragma once

#include <string>
#include <vector>

#include "cases/case.h"
#include "cp_core/context_parallel/context_parallel.h"
#include "cp_core/run_case/run_case.h"
#include "cp_core/testing/gpu_ranks.h"
#include "cp_core/verify/rank_view.h"

namespace cp_pool::test {

// The number of ranks for tests of a communication type on this machine: 4, or 2 if there are fewer GPUs and the type
// allows it. Call require_gpus too, since there may be no GPU.
int gpu_ranks_for(CommType comm);

// A causal thd case in bf16 and deterministic mode, with these valid lengths and with padding between sequences.
Case gpu_thd_case(CommType comm, Backend backend, int ranks, const std::vector<std::int64_t>& seqlens);

// Every rank of the group constructs it with the same case. Keeps this rank's shards on its GPU. The constructor resets
// the process state as a worker does before a case.
class GpuStep {
 public:
  // replayed: as AttentionProblem::replayed.
  GpuStep(const Case& c, const GpuRank& rank, const CpGroups& groups, bool replayed = false);

  // Enqueue the work on the current stream.
  [[nodiscard]] AttentionForward forward() const;
  [[nodiscard]] AttentionGradients backward(const AttentionForward& forward) const;
  [[nodiscard]] verify::Results run() const;
  // Runs a step, waits for it, and returns the hash of the bits of all results of this rank.
  [[nodiscard]] std::string hash() const;
  // Waits for the device and checks the results.
  [[nodiscard]] std::vector<Check> check(const verify::Results& results) const;

 private:
  Case case_;
  const CpGroups& groups_;
  SequenceLengths lengths_;
  verify::CanonicalProblem canonical_;
  AttentionProblem problem_;
  verify::RankView view_;
  verify::Shards shards_;
};

}  // namespace cp_pool::test
