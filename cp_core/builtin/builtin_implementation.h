// Our own context-parallel attention as the implementation under test, and what a worker does with it besides running
// cases: skip reasons, preparation and rehearsals.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cp_core/attention/backend.h"
#include "cp_core/context_parallel/context_parallel.h"
#include "cp_core/run_case/implementation.h"
#include "cp_core/run_case/run_case.h"

namespace cp_pool {

class BuiltinImplementation : public Implementation {
 public:
  // cut: the convention by which inputs are sharded and results are judged. The attention itself always treats its rows
  // as dual chunks, so any other convention makes it wrong on purpose, to test the judge.
  explicit BuiltinImplementation(verify::Convention cut = {}) : cut_(cut) {}

  std::string skip_reason(const Case& c, const at::Device& device) override;
  // On a CPU the answer is always the math backend, whatever the case asks for.
  std::string backend(const Case& c, const at::Device& device) override;
  verify::Sharding sharding(const Case& c, const SequenceLengths& lengths) override;
  bool repeats_bits(const Case& c, const at::Device& device) override;
  std::int64_t probe_heads(const Case& c) override;
  std::unique_ptr<Step> make_step(const StepSetting& setting, const verify::Shards& shards) override;

 private:
  verify::Convention cut_;
};

// The inputs and the results of our own attention on one rank. Results are in the case's layout; lse is fp32 [heads,
// local tokens], max_logit and dsink are fp32 [heads].
AttentionInputs attention_inputs(const verify::Shards& shards);
verify::Results results_of(const AttentionForward& forward, const AttentionGradients& gradients);

// Decoding as our own attention does it: every rank has all queries and attends its own keys with them, the ranks
// gather each other's output and lse, and each merges the parts. setting: of a case for which merges_parts()
// (cases/comm_facts.h) holds.
std::unique_ptr<Step> make_parts_step(const StepSetting& setting, const verify::Shards& shards);

// Why this build cannot run the case on this device, as a sentence; empty if it can. The same on every rank.
std::string skip_reason(const Case& c, const at::Device& device = at::kCPU);

// run_case (run_case/run_case.h) with our own attention.
RankReport run_case(const Case& c, const CpGroups& groups, const RunOptions& options);

// Returns work that this rank can do for a case in advance, while another case runs (attention/backend.h). Empty for a
// case that would be skipped, and on a CPU. The device must be set in the calling thread and in the threads that do the
// work.
std::vector<Preparation> prepare_case(const Case& c, int rank, const at::Device& device);
std::vector<Preparation> prepare_case(const Case& c, int rank, const FastBackend& backend);

// Runs a case of one rank from inputs to verdict. May be called on any thread while another case runs, and keeps that
// case's global flags. Throws std::runtime_error if the case does not pass.
void rehearse_case(const Case& c, const at::Device& device);
// Returns small cases to rehearse, with cuDNN and with math. They load the kernels of the libraries and our own, which
// would cost the first case of a process half a second. Empty on a CPU.
std::vector<Preparation> rehearsals(const at::Device& device);

}  // namespace cp_pool
