// The commands that rerun one case, or all cases that failed, as the user would type them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/cli/execution_options.h"
#include "driver/cli/select/selection.h"

namespace cp_pool {

// `program` is argv[0], here and below.
std::string rerun_of_run(const std::string& program, const SelectedCase& selected, const ExecutionOptions& options);

// Returns the command that reruns all cases that fail in a run; nullopt without an --events file that can be read
// afterwards.
std::optional<std::string> rerun_of_failed(const std::string& program, const SelectionOptions& selection,
                                           const ExecutionOptions& options);

// The next three are for submit. `edits` are the values of --set.
std::string rerun_of_id(const std::string& program, const SelectedCase& selected, const std::vector<std::string>& edits,
                        const ExecutionOptions& options);

std::string rerun_of_file(const std::string& program, const std::string& file, const std::vector<std::string>& edits,
                          const ExecutionOptions& options);

// For a case that came on stdin: the command holds the case itself, with its edits applied.
std::string rerun_of_json(const std::string& program, std::string_view case_json, const ExecutionOptions& options);

// Like rerun_of_failed, for cases that came on stdin.
std::optional<std::string> rerun_of_failed_stream(const std::string& program, const ExecutionOptions& options);

}  // namespace cp_pool
