// Steps of attention on GPU ranks that tests run again and again.
#pragma once

#include <string>
#include <vector>

#include "cases/case.h"
#include "cp_core/context_parallel/context_parallel.h"
#include "cp_core/testing/gpu_ranks.h"
#include "cp_core/trial/run_case.h"
#include "cp_core/verify/rank_view.h"

namespace cp_pool::test {

// How many ranks tests give a communication type on this machine: 4, or 2 if there are fewer GPUs and the type allows.
// Then require_gpus: there may be none.
int gpu_ranks_for(CommType comm);

// A thd case of bf16, causal and in deterministic mode, with these valid lengths and with padding between them.
Case gpu_thd_case(CommType comm, Backend backend, int ranks, const std::vector<std::int64_t>& seqlens);

// The same on every rank of the group; keeps this rank's share of the inputs on its GPU. The process is put in the
// state that the worker puts it in before a case.
class GpuStep {
 public:
  // replayed: as AttentionProblem's.
  GpuStep(const Case& c, const GpuRank& rank, const CpGroups& groups, bool replayed = false);

  // Enqueued on the current stream.
  [[nodiscard]] AttentionForward forward() const;
  [[nodiscard]] AttentionGradients backward(const AttentionForward& forward) const;
  [[nodiscard]] verify::Results run() const;
  // The same, waited for: of the bits of everything that the rank got.
  [[nodiscard]] std::string hash() const;
  // Waits for the device.
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
