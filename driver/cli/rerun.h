// The command that reruns one case alone, as the user would type it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "driver/cli/options.h"
#include "driver/cli/selection.h"

namespace cp_pool {

// program: as it was called (argv[0]).
std::string rerun_of_run(const std::string& program, const SelectedCase& selected, const ExecutionOptions& options);

// The next three are of submit; edits as given with --set.
std::string rerun_of_id(const std::string& program, const SelectedCase& selected, const std::vector<std::string>& edits,
                        const ExecutionOptions& options);

std::string rerun_of_file(const std::string& program, const std::string& file, const std::vector<std::string>& edits,
                          const ExecutionOptions& options);

// A case that came on stdin: the command carries the case itself, edited already.
std::string rerun_of_json(const std::string& program, std::string_view case_json, const ExecutionOptions& options);

}  // namespace cp_pool
