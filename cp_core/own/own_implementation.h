// Our own context-parallel attention as what is under test, and what a worker does with it beside running cases.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cp_core/attention/fast_backend.h"
#include "cp_core/context_parallel/context_parallel.h"
#include "cp_core/trial/implementation.h"
#include "cp_core/trial/run_case.h"

namespace cp_pool {

class OwnImplementation final : public Implementation {
 public:
  // cut: inputs are cut by this convention, and results judged by it, while the attention goes on to hold its rows for
  // dual chunks. That is wrong on purpose for all but dual_chunk: the judge must see it.
  explicit OwnImplementation(verify::Convention cut = {}) : cut_(cut) {}

  std::string skip_reason(const Case& c, const at::Device& device) override;
  // On CPU the math backend runs what any backend would.
  std::string backend(const Case& c, const at::Device& device) override;
  verify::Sharding sharding(const Case& c, const SequenceLengths& lengths) override;
  bool repeats_bits(const Case& c, const at::Device& device) override;
  std::int64_t probe_heads(const Case& c) override;
  std::unique_ptr<Step> make_step(const StepSetting& setting, const verify::Shards& shards) override;

 private:
  verify::Convention cut_;
};

// Why this build cannot run the case on this device, as a sentence; empty if it can. The same on every rank.
std::string skip_reason(const Case& c, const at::Device& device = at::kCPU);

// run_case (trial/run_case.h) with our own attention.
RankReport run_case(const Case& c, const CpGroups& groups, const RunOptions& options);

// Returns work that this rank can do for the case before it runs, while another case runs (attention/backend.h). Empty
// for a case that would be skipped, and on a CPU. The calling thread, and those that do the work, must have the device
// set.
std::vector<Preparation> prepare_case(const Case& c, int rank, const at::Device& device);
std::vector<Preparation> prepare_case(const Case& c, int rank, const FastBackend& backend);

// Runs a case of one rank from inputs to verdict, on any thread and while another case runs, whose global flags it
// uses. Throws std::runtime_error if the case does not pass.
void rehearse_case(const Case& c, const at::Device& device);
// Small cases to rehearse, with cuDNN and with math. They load the kernels of libraries and our own, which would take
// the first case of a process half a second. None on a CPU.
std::vector<Preparation> rehearsals(const at::Device& device);

}  // namespace cp_pool
