// Selects cases by --matrix, --size and --filter.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cases/matrix.h"
#include "driver/cli/output_check.h"
#include "driver/cli/select/selection_options.h"
#include "driver/core/events.h"

namespace cp_pool {

struct SelectedCase {
  MatrixCase matrix_case;
  std::string matrix;  // the argument that named its matrix
};

struct Selection {
  std::vector<SelectedCase> cases;        // in the order of the matrices
  std::vector<std::string> idle_filters;  // filters that select no case: "the filter 'x'", "-k 'x'"
  std::set<std::string> unknown_ids;      // members of SelectionOptions::ids that no matrix has
  std::string title;                      // the names of the matrices: "te-flash, te-fused"
  std::optional<ShardOfRun> shard;        // if the cases are one of several shards
};

// Selects cases; without filters and IDs, all but the optional ones. Throws CommandError (bad_input) for a bad matrix,
// case or filter.
Selection select_cases(const SelectionOptions& options);
// The same, for uses that need not keep the cases, of which there may be a million: gives them to `take` instead of
// returning them. Leaves the shard out of account.
using TakeSelectedCase = std::function<void(SelectedCase&& selected)>;
Selection select_cases(const SelectionOptions& options, const TakeSelectedCase& take);

// Returns the files of the matrices. Throws CommandError (bad_input) for a matrix that is not shipped.
std::vector<InputFile> matrix_inputs(const SelectionOptions& options);  // all shipped ones if none is named

// Returns the error for options that select no case: "no case of quick is selected", and the other shipped matrices
// that have selected cases.
std::string nothing_selected(const SelectionOptions& options);

}  // namespace cp_pool
