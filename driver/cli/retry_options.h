// The options --retries, --retry-on, --flaky, --triage and --capsules of commands that run cases.
#pragma once

#include "driver/cli/option_kinds.h"
#include "driver/core/run.h"

namespace cp_pool {

void add_retries(CLI::App& command, RunConfig& config);
// Adds --flaky alone, for reports of runs that are over.
void add_flaky(CLI::App& command, RunConfig& config);

}  // namespace cp_pool
