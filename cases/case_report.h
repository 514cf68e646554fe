// The parts of a rank's report of a case. cp_core makes them, ranks send them to rank 0, the worker sends them to the
// driver, and events contain them. Each struct lists its fields (cases/fields.h). A new field needs a member and an
// entry here, a line where it is measured, and an entry in docs/protocol.md and docs/protocol.schema.json.
#pragma once

#include <cstdint>
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
  std::string message;   // empty if ok; else the mistake ("NaN in 3 rows", "padding not zero", ...)
  bool measured = true;  // false if error and bound are unknown

  static constexpr auto fields() {
    return FieldList{field("tensor", &Check::tensor, Presence::required),
                     field("rank", &Check::rank, Presence::required),
                     field("ok", &Check::ok, Presence::required),
                     figure("error", &Check::error, &Check::measured),
                     figure("bound", &Check::bound, &Check::measured),
                     field("baseline", &Check::baseline),
                     field("max_abs", &Check::max_abs),
                     field("rms", &Check::rms),
                     field("worst_index", &Check::worst_index),
                     field("message", &Check::message)};
  }
};

// A requested file that could not be written. The case's outcome does not change.
struct LostOutput {
  std::string output;   // "dump" or "trace"
  std::string message;  // one line that names the file and the cause

  static constexpr auto fields() {
    return FieldList{field("output", &LostOutput::output), field("message", &LostOutput::message, Presence::required)};
  }
};

// The times of one rank's steps.
struct StepTimes {
  std::vector<double> step_ms;      // milliseconds of each timed step of this rank
  std::int64_t bytes_sent = 0;      // bytes that this rank sends per step; counting_communicator.h says what counts
  std::vector<double> one_rank_ms;  // on rank 0: milliseconds of each step of the whole problem on one rank; or empty
  std::string one_rank_reason;      // on rank 0: why one rank cannot run the whole problem, as a sentence
  std::string trace_error;          // why a trace could not be written: one line that names the file; empty if all were

  // trace_error is not sent: it has become a LostOutput by then.
  static constexpr auto fields() {
    return FieldList{field("step_ms", &StepTimes::step_ms), field("bytes_sent", &StepTimes::bytes_sent),
                     field("one_rank_ms", &StepTimes::one_rank_ms),
                     field("one_rank_reason", &StepTimes::one_rank_reason)};
  }
};

}  // namespace cp_pool
