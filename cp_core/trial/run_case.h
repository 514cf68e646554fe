// Runs one case on this rank and verifies this rank's results: the entry from worker/ into cp_core/.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"
#include "cases/case_outcome.h"
#include "cases/case_report.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/trial/case_times.h"
#include "cp_core/trial/implementation.h"
#include "cp_core/trial/judged_case.h"

namespace cp_pool {

struct RankReport {
  CaseOutcome outcome = CaseOutcome::pass;  // pass, fail or skip
  std::string reason;                       // of a fail or skip, one sentence
  std::vector<Check> checks;
  std::map<std::string, double> timings_ms;  // by phase, as in RunOptions
  std::set<std::string> remarks;             // Step::remarks of its steps
  std::optional<StepTimes> perf;             // if asked for, and every rank passed
  std::vector<LostOutput> lost_outputs;      // they change no outcome
  double bound_factor = 1;                   // every bound was so many times as wide
  std::string output_hash;  // of the bits of this rank's outputs and gradients; equal inputs give equal hashes
  std::shared_ptr<const JudgedCase> judged;  // RunOptions::keep_judged; none of a skip and where times were taken
};

struct RunOptions {
  std::optional<std::filesystem::path> dump_dir;  // write inputs and results of all ranks there (docs/numerics.md)
  std::string id;                                 // names the dump; empty = case_id of the case
  // Of a case that several groups run at once (cases/case_groups.h): what the dump's name has behind the ID, and this
  // rank among those of all groups, whose cache of references it uses; none: it is the rank in groups.cp.
  std::string group_suffix;
  std::optional<int> world_rank;
  bool keep_judged = false;         // give the results back with the report, for a diagnosis
  bool reference_cache = true;      // keep references for later cases that pose the same problem
  at::Device device = at::kCPU;     // where the ranks' tensors are: the communicators' device
  bool shares_gpus = false;         // ranks share GPUs, the same on all of them
  int ranks_on_gpu = 1;             // how many ranks use this rank's GPU
  bool sets_global_flags = true;    // false: another case, whose flags these are, runs at the same time
  std::optional<PerfOptions> perf;  // time the step after it has been verified
  double bound_factor = 1;          // bounds are so many times as wide, beside the implementation's own
  // When waits in communication that is not cp-pool's have to end: 90 % of the case's time.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  // Called when a phase starts (cases/case_phases.h).
  std::function<void(std::string_view)> on_phase;
  // Called for each result of the step, and of its repetition, before anything reads it. It may replace `result`, which
  // is then verified, hashed and dumped: this is how faults are injected. tensor: the name of the result in checks.
  std::function<void(std::string_view tensor, bool repeated, at::Tensor& result)> on_result;
};

// Why run_case would skip the case over so many ranks, as far as can be told before there are ranks: a sentence; empty
// if it would run. Throws what the implementation throws about rows that it lists itself.
std::string why_skipped(Implementation& implementation, const Case& c, const at::Device& device, int ranks);

// Collective over groups.cp. Files that cannot be written are in the report. Throws CommError, or whatever a library
// throws; other ranks may then still wait in a collective.
RankReport run_case(Implementation& implementation, const Case& c, const CpGroups& groups, const RunOptions& options);

// Seeds every generator with 1234, restores deterministic flags, gives cached device memory back and drops scratch
// state: before every case.
void reset_numeric_state(const at::Device& device = at::kCPU);

}  // namespace cp_pool
