// What a rank reports of a case: the outcome, made of cp_core's report, its phases, the resources that it holds, and
// the end of its stderr; the errors of code that a case runner runs, and how a caught exception becomes a Failure.
#pragma once

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cp_core/run_case/run_case.h"
#include "worker/rank_messages.h"

namespace cp_pool {

// An error in code that a case runner runs, with a text of its own such as the traceback of another language.
class RunnerError : public std::runtime_error {
 public:
  // failure: no stack of this process is added to its text. Of its kind, assertion and exception mean that the code is
  // at fault, unsupported skips the case, and the others mean that peers held the rank up.
  explicit RunnerError(Failure failure) : std::runtime_error(failure.summary), failure_(std::move(failure)) {}
  [[nodiscard]] const Failure& failure() const { return failure_; }

 private:
  Failure failure_;
};

// This rank does not run the case, or answer a question of its diagnosis, and has begun nothing that a peer waits for.
// If every rank throws it at the same place, nobody has to be freed: the case is a skip. Else it is the failure of this
// rank that `alone` describes.
class Declined : public std::runtime_error {
 public:
  // place: compared between the ranks; never empty.
  Declined(const std::string& reason, std::string place, Failure alone)
      : std::runtime_error(reason), place_(std::move(place)), alone_(std::move(alone)) {}
  [[nodiscard]] const std::string& place() const { return place_; }
  [[nodiscard]] const Failure& alone() const { return alone_; }

 private:
  std::string place_;
  Failure alone_;
};

struct CaughtError {
  Failure failure;            // the text is the message and, for c10::Error, its context; it has no stack trace yet
  std::vector<void*> frames;  // stack frames of the throw site
};

// Describes the exception that is being handled. Call it inside a catch block. It is fast.
CaughtError describe_current_exception(FailurePhase phase);

// Writes to stderr what failed and why, and ends the process. Call it inside a catch block where unwinding would wait
// for threads.
[[noreturn]] void die_of_current_exception(int rank, std::string_view what);

// Appends the resolved frames to failure.text, cut at protocol::kMaxErrorBytes. It is slow.
Failure with_stack_trace(const CaughtError& caught);

// Moves the report into `outcome`, whose rank is already set. Of what `outcome` had reported before, the times of
// phases stay.
void take_report(RankReport report, RankOutcome& outcome);

// Times a phase that the case runner does not time.
class PhaseTimer {
 public:
  PhaseTimer(RankOutcome& outcome, const char* phase) : outcome_(outcome), phase_(phase) {}
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;
  ~PhaseTimer() {
    outcome_.timings_ms[phase_] = std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;

  RankOutcome& outcome_;
  const char* phase_;
  Clock::time_point start_ = Clock::now();
};

// The failure of a rank that has declined the case, while others have not or did so elsewhere. met: why the ranks did
// not meet.
Failure failure_alone(const Declined& declined, const Failure& met);

// Reads resident memory, open file descriptors and threads of this process from /proc, for leak detection across cases.
protocol::Hygiene measure_hygiene(int rank);

// Writes all of a case's stderr and a fence before the result: what a rank prints later belongs to the next case.
void write_fence(std::int64_t seq);

}  // namespace cp_pool
