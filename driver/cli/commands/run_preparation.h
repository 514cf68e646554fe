// The options of `run`, and the step from a selection to the cases of a run.
#pragma once

#include <string>
#include <vector>

#include "driver/cli/commands/command_options.h"
#include "driver/cli/history/case_history.h"
#include "driver/cli/output_check.h"
#include "driver/cli/select/selection.h"
#include "driver/core/run.h"

namespace cp_pool {

// Adds the options of RunCommandOptions, except those of the selection and --rerun-failed.
void add_run_options(CLI::App& command, RunCommandOptions& options);
// Completes the options when all of them have been read. Throws CommandError (usage).
void fill_run_options(const CLI::App& command, RunCommandOptions& options);

// Reads the times of --shard-times. Throws CommandError (bad_input).
void read_shard_times(SelectionOptions& options);

// Returns the trends of recorded runs like `run` (read_case_trends). Throws CommandError (bad_input).
CaseTrends trends_of(const RunCommandOptions& options, const RunStarted& run);

// Returns the input files that the options name. No output may replace them.
std::vector<InputFile> inputs_of(const RunCommandOptions& options);

// Warns of filters that select no case. Throws CommandError (nothing_selected) if no case is selected.
void expect_cases(const Selection& selection, const SelectionOptions& options);

struct PreparedRun {
  std::vector<Item> cases;  // in the order in which they run; --repeat has a case here several times
  RunStarted header;
};

// `program` is argv[0]. Throws CommandError (bad_input, or usage if there are too many cases).
PreparedRun prepare_run(const Selection& selection, const RunCommandOptions& options, const std::string& program);

}  // namespace cp_pool
