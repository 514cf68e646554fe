// The options --retries, --retry-on, --flaky, --triage and --capsules of commands that run cases.
#pragma once

#include "driver/core/run.h"

namespace CLI {  // NOLINT(readability-identifier-naming): of CLI11
class App;
}

namespace cp_pool {

void add_retries(CLI::App& command, RunConfig& config);
// Adds --flaky alone, for reports of runs that are over.
void add_flaky(CLI::App& command, RunConfig& config);

}  // namespace cp_pool
