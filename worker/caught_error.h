// Turns a caught exception into a Failure to report.
#pragma once

#include <string_view>
#include <vector>

#include "worker/rank_messages.h"

namespace cp_pool {

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

}  // namespace cp_pool
