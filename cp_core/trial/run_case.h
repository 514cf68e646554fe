// Runs one case on this rank and verifies this rank's results: the entry from worker/ into cp_core/.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"
#include "cases/case_outcome.h"
#include "cases/case_report.h"
#include "cp_core/attention/fast_backend.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/trial/case_times.h"

namespace cp_pool {

struct RankReport {
  CaseOutcome outcome = CaseOutcome::pass;  // pass, fail or skip
  std::string reason;                       // of a fail or skip, one sentence
  std::vector<Check> checks;
  std::map<std::string, double> timings_ms;  // by phase, as in RunOptions
  std::set<std::string> remarks;             // AttentionBackend::remarks of its steps
  std::optional<StepTimes> perf;             // if asked for, and every rank passed
  std::vector<LostOutput> lost_outputs;      // they change no outcome
  std::string output_hash;  // of the bits of this rank's outputs and gradients; equal inputs give equal hashes
};

struct RunOptions {
  std::optional<std::filesystem::path> dump_dir;  // write inputs and results of all ranks there (docs/numerics.md)
  std::string id;                                 // names the dump; empty = case_id of the case
  bool reference_cache = true;                    // keep references for later cases that pose the same problem
  at::Device device = at::kCPU;                   // where the ranks' tensors are: the communicators' device
  bool shares_gpus = false;                       // ranks share GPUs, the same on all of them
  int ranks_on_gpu = 1;                           // how many ranks use this rank's GPU
  std::optional<PerfOptions> perf;                // time the step after it has been verified
  // Called when a phase starts (cases/case_phases.h).
  std::function<void(std::string_view)> on_phase;
  // Called for each result of the step, and of its repetition, before anything reads it. It may replace `result`, which
  // is then verified, hashed and dumped: this is how faults are injected. tensor: the name of the result in checks.
  std::function<void(std::string_view tensor, bool repeated, at::Tensor& result)> on_result;
};

// Why this build cannot run the case on this device, as a sentence; empty if it can. The same on every rank.
std::string skip_reason(const Case& c, const at::Device& device = at::kCPU);

// Collective over groups.cp. Files that cannot be written are in the report. Throws CommError, or whatever a library
// throws; other ranks may then still wait in a collective.
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

// Seeds every generator with 1234, restores deterministic flags, gives cached device memory back and drops scratch
// state: before every case.
void reset_numeric_state(const at::Device& device = at::kCPU);

}  // namespace cp_pool
