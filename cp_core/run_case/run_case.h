// Runs one case on this rank and verifies this rank's results. This is the entry from worker/ into cp_core/.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"
#include "cases/case_outcome.h"
#include "cases/case_report.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/run_case/case_times.h"
#include "cp_core/run_case/implementation.h"
#include "cp_core/run_case/judged_case.h"

namespace cp_pool {

struct RankReport : CaseReport {
  CaseOutcome outcome = CaseOutcome::pass;   // pass, fail or skip
  std::shared_ptr<const JudgedCase> judged;  // RunOptions::keep_judged; null for skips, and if steps were timed
};

struct RunOptions {
  std::optional<std::filesystem::path> dump_dir;  // write inputs and results of all ranks there (docs/numerics.md)
  std::string id;                                 // names the dump; empty = case_id of the case
  // For a case that several groups run at once (cases/case_groups.h): the suffix of the dump's name after the ID, and
  // this rank's number among the ranks of all groups, which selects its reference cache; nullopt: its rank in
  // groups.cp.
  std::string group_suffix;
  std::optional<int> world_rank;
  bool keep_judged = false;         // return the judged results in the report, for a diagnosis
  bool reference_cache = true;      // keep references for later cases that pose the same problem
  at::Device device = at::kCPU;     // where this rank's tensors are; the device of the communicators
  bool shares_gpus = false;         // whether any ranks share a GPU; the same on all ranks
  int ranks_on_gpu = 1;             // how many ranks use this rank's GPU
  bool sets_global_flags = true;    // false: another case runs at the same time, and its global flags stay
  std::optional<PerfOptions> perf;  // time the step after it has been verified
  double bound_factor = 1;          // factor on all bounds, besides the implementation's own factor
  // When waits in communication other than cp-pool's own must end: at 90 % of the case's time.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  // Called when a phase starts (cases/case_phases.h).
  std::function<void(std::string_view)> on_phase;
  // Called for each result of the step and of its repetition before anything reads it. It may replace `result`, which
  // is then verified, hashed and dumped; faults are injected this way. tensor: the name of the result in checks.
  std::function<void(std::string_view tensor, bool repeated, at::Tensor& result)> on_result;
};

// Returns why run_case would skip the case on this many ranks, as a sentence; empty if it would run, as far as this can
// be known before ranks exist. Throws if rows that the implementation lists itself cannot be judged, and whatever the
// implementation throws.
std::string why_skipped(Implementation& implementation, const Case& c, const at::Device& device, int ranks);

// Returns the pairs that each rank of a group will compute (RankMeasurements::pairs). The case must not be skipped.
// Throws whatever the implementation throws.
std::vector<std::int64_t> expected_pairs(Implementation& implementation, const Case& c);

// Collective over groups.cp. Files that cannot be written are listed in the report. Throws CommError, and whatever a
// library throws; other ranks may then still be waiting in a collective.
RankReport run_case(Implementation& implementation, const Case& c, const CpGroups& groups, const RunOptions& options);

// Seeds every generator with 1234, resets the deterministic flags, releases cached device memory and drops scratch
// state. Is called before every case.
void reset_numeric_state(const at::Device& device = at::kCPU);

}  // namespace cp_pool
