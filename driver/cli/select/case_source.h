// Finds the one case that the user names: by the ID of a case of a matrix, a JSON file, or the JSON itself, with edits.
#pragma once

#include <string>
#include <vector>

#include "cases/matrix.h"
#include "driver/cli/execution_options.h"
#include "driver/cli/output_check.h"
#include "driver/cli/select/selection.h"
#include "driver/core/run.h"

namespace cp_pool {

// True if the argument is the case itself, a JSON object.
bool is_json(const std::string& argument);

// True if the argument is an ID: it is not "-", no JSON, does not end in .json and is no file.
bool is_id(const std::string& argument);

// Returns the inputs that are read for the argument: the matrices in which an ID is looked up, a file, stdin for "-",
// or none for JSON. Throws CommandError (bad_input) for a matrix that is not shipped.
std::vector<InputFile> case_inputs(const std::string& argument, const SelectionOptions& options);

// Returns the case with its edits applied, and its rerun command. Throws CaseError.
Item find_case(const std::string& argument, const SelectionOptions& selection, const std::vector<std::string>& edits,
               const ExecutionOptions& execution, const std::string& program);

// Returns the case as filters see it. A case that is in no matrix has neither tags nor a size. Throws CaseError.
MatrixCase subject_of(const Item& found, const std::string& argument, const SelectionOptions& selection);

}  // namespace cp_pool
