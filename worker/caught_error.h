// An exception that was caught, as a Failure to report.
#pragma once

#include <string_view>
#include <vector>

#include "worker/rank_messages.h"

namespace cp_pool {

struct CaughtError {
  Failure failure;            // text is the summary and, for c10::Error, its context: no stack trace yet
  std::vector<void*> frames;  // of the throw site
};

// Call inside a catch block. Fast.
CaughtError describe_current_exception(FailurePhase phase);

// Call inside a catch block, where unwinding would wait for threads: says on stderr what failed, and why, and ends the
// process.
[[noreturn]] void die_of_current_exception(int rank, std::string_view what);

// Resolves the frames into failure.text, cut at protocol::kMaxErrorBytes. Slow.
Failure with_stack_trace(const CaughtError& caught);

}  // namespace cp_pool
