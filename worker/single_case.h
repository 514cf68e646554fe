// cp-pool-worker --case FILE: one case without a driver. Its cp_size ranks are threads of this process, connected by
// Gloo over loopback, so that a debugger sees all of them.
#pragma once

#include <string>

#include "cases/case.h"
#include "worker/case_runner.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

// Runs all ranks. A rank that throws frees the others from their collectives. Throws CommError if the ranks cannot
// connect.
protocol::ResultEvent run_single_case(const Case& c, CaseRunner& runner);

// Describes the result for people: a line per rank, a table of the checks, and the outcome last.
std::string describe_result(const protocol::ResultEvent& result);

}  // namespace cp_pool
