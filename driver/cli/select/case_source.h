// One case as the user names it: an ID of a matrix, a JSON file, or the JSON itself, with edits.
#pragma once

#include <string>
#include <vector>

#include "cases/matrix.h"
#include "driver/cli/execution_options.h"
#include "driver/cli/output_check.h"
#include "driver/cli/select/selection_options.h"
#include "driver/run.h"

namespace cp_pool {

// Whether the argument is the case itself: a JSON object.
bool is_json(const std::string& argument);

// Whether the argument is an ID rather than a file: it is not "-" and no JSON, does not end in .json and is no file.
bool is_id(const std::string& argument);

// What is read for the argument: the matrices where an ID is looked up, a file, stdin for "-", or
// nothing for JSON. Throws CommandError
// (bad_input) for a matrix that is not shipped.
std::vector<InputFile> case_inputs(const std::string& argument, const SelectionOptions& options);

// The case with its edits made, and its rerun command. Throws CommandError (bad_input).
NamedCase find_case(const std::string& argument, const SelectionOptions& selection,
                    const std::vector<std::string>& edits, const ExecutionOptions& execution,
                    const std::string& program);

// What filters read of it: a case that is in no matrix has neither tags nor a size. Throws likewise.
MatrixCase subject_of(const NamedCase& found, const std::string& argument, const SelectionOptions& selection);

}  // namespace cp_pool
