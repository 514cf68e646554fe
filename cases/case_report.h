// The parts of a rank's report of a case. cp_core makes them, ranks send them to rank 0, the worker sends them to the
// driver, and events contain them. Each struct lists its fields (cases/fields.h). A struct that passes a part on
// derives from it, so that a new field comes along. A new field needs a member and an entry here, a line where it is
// measured, and an entry in docs/protocol.md and docs/protocol.schema.json.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cases/fields.h"

namespace cp_pool {

// The comparison of one tensor of one rank with the reference (docs/numerics.md). error, bound and baseline are those
// of the worst row: the one with the largest error / bound.
struct Check {
  std::string tensor;                     // out, dq, dk, dv, lse, ...
  int rank = 0;                           // set by the worker, not by cp_core
  double max_abs = 0;                     // largest absolute error of the tensor
  double rms = 0;                         // root mean square error of the tensor
  double error = 0;                       // error of the worst row
  double bound = 0;                       // largest error that this row may have
  double baseline = 0;                    // baseline error of that row
  std::vector<std::int64_t> worst_index;  // [sequence, position, head] of the worst row
  bool ok = true;
  std::string message = {};  // empty if ok; else the mistake ("NaN in 3 rows", "padding not zero", ...)
  bool measured = true;      // false if error and bound are unknown

  static constexpr auto fields() {
    return FieldList{required<&Check::tensor, &Check::rank, &Check::ok>(),
                     figure("error", &Check::error, &Check::measured), figure("bound", &Check::bound, &Check::measured),
                     optional<&Check::baseline, &Check::max_abs, &Check::rms, &Check::worst_index, &Check::message>()};
  }
};

// A requested file that could not be written. The case's outcome does not change.
struct LostOutput {
  std::string output;   // "dump" or "trace"
  std::string message;  // one line that names the file and the cause

  static constexpr auto fields() {
    return FieldList{optional<&LostOutput::output>(), required<&LostOutput::message>()};
  }
};

// Milliseconds of several steps.
struct StepMs {
  double median = 0;
  double min = 0;
  double max = 0;

  static constexpr auto fields() { return FieldList{optional<&StepMs::median, &StepMs::min, &StepMs::max>()}; }
};
// step_ms: at least one.
inline StepMs summarise(std::vector<double> step_ms) {
  std::ranges::sort(step_ms);
  const std::size_t middle = step_ms.size() / 2;
  const double median = step_ms.size() % 2 == 1 ? step_ms[middle] : (step_ms[middle - 1] + step_ms[middle]) / 2;
  return {.median = median, .min = step_ms.front(), .max = step_ms.back()};
}

// The measurements of a step besides its times: those of one rank, or those of all ranks after join().
struct StepMeasurements {
  std::optional<StepMs> one_rank_ms = std::nullopt;  // the whole problem on one rank; measured by rank 0
  std::string one_rank_reason = {};                  // why there is no one_rank_ms, as a sentence; from rank 0
  // Bytes that a rank sends per step (wrapped_communicator.h says what counts), or that the rank which sends most
  // sends; unset if the worker does not count them.
  std::optional<std::int64_t> bytes_sent = std::nullopt;

  // Adds the measurements of a rank after the first. What this function does not name stays that of the first rank.
  void join(const StepMeasurements& other) { bytes_sent = std::max(bytes_sent, other.bytes_sent); }

  static constexpr auto fields() {
    return FieldList{optional<&StepMeasurements::one_rank_ms, &StepMeasurements::one_rank_reason>(),
                     sparse<&StepMeasurements::bytes_sent>()};
  }
};

// The times and measurements of one rank's steps.
struct StepTimes : StepMeasurements {
  std::vector<double> step_ms;  // milliseconds of each timed step of this rank
  std::string trace_error;      // why a trace could not be written: one line that names the file; empty if all were

  // trace_error is not sent: it has become a LostOutput by then.
  static constexpr auto fields() { return FieldList{optional<&StepTimes::step_ms>()} + StepMeasurements::fields(); }
};

// How many operations a rank has begun in one of its groups of ranks. After a case, ranks compare these counts to prove
// that they are at the same place.
struct BegunInGroup {
  std::string group;            // the group in words, as messages append it: "" or " of its inner group"
  int first_rank = 0;           // first rank of the group; ranks with equal `group` and `first_rank` are in one group
  std::int64_t operations = 0;  // operations begun; equal on every rank of the group if all are at the same place

  static constexpr auto fields() {
    return FieldList{optional<&BegunInGroup::group, &BegunInGroup::first_rank, &BegunInGroup::operations>()};
  }
};

// What a rank reports about itself in any result.
struct RankMeasurements {
  std::string output_hash = {};                   // hash of the bits of this rank's results; empty if it has none
  std::map<std::string, double> timings_ms = {};  // milliseconds by phase (cases/case_phases.h) that it has completed
  // How many pairs of a query and a key that it sees the rank computes, summed over its heads: what the sharding makes
  // of the case. Unset if the worker does not count them.
  std::optional<std::int64_t> pairs = std::nullopt;

  static constexpr auto fields() {
    return FieldList{optional<&RankMeasurements::output_hash>(),
                     sparse<&RankMeasurements::timings_ms, &RankMeasurements::pairs>()};
  }
};

// What a rank that has finished a case reports about it.
struct CaseReport : RankMeasurements {
  std::string reason;  // why the case failed or was skipped, one sentence; empty if it passed
  std::vector<Check> checks;
  std::set<std::string> remarks;         // Step::remarks of all steps
  std::optional<StepTimes> perf;         // set if asked for and every rank passed
  std::vector<LostOutput> lost_outputs;  // files that could not be written; they do not change the outcome
  double bound_factor = 1;               // the factor by which every bound was widened

  static constexpr auto fields() {
    return FieldList{sparse<&CaseReport::reason, &CaseReport::checks, &CaseReport::remarks, &CaseReport::perf,
                            &CaseReport::lost_outputs>(),
                     optional<&CaseReport::bound_factor>()} +
           RankMeasurements::fields();
  }
};

}  // namespace cp_pool
