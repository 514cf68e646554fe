// One case as the user names it: an ID of a matrix or a JSON file, with edits.
#pragma once

#include <string>
#include <vector>

#include "driver/cli/options.h"
#include "driver/run.h"

namespace cp_pool {

// Whether the argument is an ID rather than a file: it is not "-", does not end in .json and is no file.
bool is_id(const std::string& argument);

// The case with its edits made, and its rerun command. Throws CommandError (bad_input).
NamedCase find_case(const std::string& argument, const SelectionOptions& selection,
                    const std::vector<std::string>& edits, const ExecutionOptions& execution,
                    const std::string& program);

}  // namespace cp_pool
