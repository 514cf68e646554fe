// What `run` and `watch` share: their options, and the cases of a selection as a run takes them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "driver/cli/commands/run_command.h"
#include "driver/cli/history/case_trends.h"
#include "driver/cli/output_check.h"
#include "driver/cli/select/selection.h"
#include "driver/run.h"

namespace cp_pool {

// The options of RunOptions but for those of the selection and --rerun-failed.
void add_run_options(CLI::App& command, RunOptions& options);
// Once all are read, those of the selection too. Throws CommandError (usage).
void fill_run_options(const CLI::App& command, RunOptions& options);

// Reads the times of --shard-times. Throws CommandError (bad_input).
void read_shard_times(SelectionOptions& options);

// Of the recorded runs of this size on this device. Throws CommandError (bad_input).
CaseTrends trends_of(const RunOptions& options);

// The files that the options name, which no output may replace.
std::vector<InputFile> inputs_of(const RunOptions& options);

// Warns of filters that select no case. Throws CommandError (nothing_selected) if there is none at all.
void expect_cases(const Selection& selection, const SelectionOptions& options);

struct PreparedRun {
  std::vector<NamedCase> cases;  // in the order in which they run, each as often as it runs
  RunStarted header;
  std::map<std::string, double> earlier_ms;  // how long cases took in an earlier run, by ID
};

// program: as it was called (argv[0]). Throws CommandError (bad_input; usage for too many cases).
PreparedRun prepare_run(const Selection& selection, const RunOptions& options, const std::string& program);

}  // namespace cp_pool
