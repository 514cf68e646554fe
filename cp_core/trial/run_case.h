// Runs one case on this rank and verifies what this rank got. The door from worker/ into cp_core/.
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
#include "cp_core/attention/backend.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/perf/step_times.h"

namespace cp_pool {

// One tensor of one rank held against the reference (DESIGN: error <= 2 * baseline error + c * u * A for every row).
// The figures are those of the worst row: the one with the largest error / bound.
struct Check {
  std::string tensor;                     // out, dq, dk, dv, lse, ...
  double max_abs = 0;                     // largest absolute error of the tensor
  double rms = 0;                         // root mean square error of the tensor
  double error = 0;                       // error of the worst row
  double bound = 0;                       // what that row is allowed
  double baseline = 0;                    // baseline error of that row
  std::vector<std::int64_t> worst_index;  // [sequence, position, head] of the worst row
  bool ok = true;
  std::string message;  // empty if ok; else what is wrong ("NaN in 3 rows", "padding not zero", ...)
};

// A file that was asked for beside the answer, and that could not be written.
struct LostOutput {
  std::string output;   // "dump" or "trace"
  std::string message;  // one line that names the path and the cause
};

struct RankReport {
  enum class Outcome { pass, fail, skip };
  Outcome outcome = Outcome::pass;
  std::string reason;  // of a fail or skip, one sentence
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
  int ranks_on_gpu = 1;                           // of those, how many share this rank's
  std::optional<PerfOptions> perf;                // time the step after it has been verified
  // Called when a phase starts: inputs, forward, backward, repeat, reference, compare, probe, dump; timed, timed alone.
  std::function<void(std::string_view)> on_phase;
  // Called for each result of the step, and of its repetition, before anything looks at it: `tensor` is its name in
  // checks. What is put in the place of `result` is what is verified, hashed and dumped: for faults on request.
  std::function<void(std::string_view tensor, bool repeated, at::Tensor& result)> on_result;
};

// Why this build cannot run the case on this device, as a sentence; empty if it can. The same on every rank.
std::string skip_reason(const Case& c, const at::Device& device = at::kCPU);

// Collective over groups.cp. What cannot be written is in the report. Throws CommError, or whatever a library throws;
// then other ranks may still sit in a collective.
RankReport run_case(const Case& c, const CpGroups& groups, const RunOptions& options);

// What this rank of the case can do before the case runs, beside another (attention/backend.h). Nothing for a case that
// would be skipped, and on a CPU. The pieces are for threads that have the device set, as has the calling one.
std::vector<Preparation> prepare_case(const Case& c, int rank, const at::Device& device);
std::vector<Preparation> prepare_case(const Case& c, int rank, const AttentionBackend& backend);

// Runs a case of one rank, from inputs to verdict, on any thread and beside any case: the global flags are that one's.
// Throws std::runtime_error if it does not pass.
void rehearse_case(const Case& c, const at::Device& device);
// Small ones, with cuDNN and with math: they load the kernels of libraries, and our own, which would take the first
// case of a process half a second. None on a CPU.
std::vector<Preparation> rehearsals(const at::Device& device);

// Seeds every generator with 1234, restores deterministic flags, gives cached device memory back and drops scratch
// state: before every case.
void reset_numeric_state(const at::Device& device = at::kCPU);

}  // namespace cp_pool
