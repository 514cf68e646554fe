// Selects cases by --matrix, --size and --filter.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "cases/matrix.h"
#include "driver/cli/output_check.h"
#include "driver/cli/select/selection_options.h"

namespace cp_pool {

struct SelectedCase {
  MatrixCase matrix_case;
  std::string matrix;  // the argument that named its matrix
};

struct Selection {
  std::vector<SelectedCase> cases;        // in the order of the matrices
  std::vector<std::string> idle_filters;  // those that select no case at all: "the filter 'x'", "-k 'x'"
  std::set<std::string> unknown_ids;      // of SelectionOptions::ids those that no matrix has
  std::string title;                      // of the matrices: "te-flash, te-fused"
};

// Without filters and IDs: every case but the optional ones. Throws CommandError (bad_input) for a bad matrix, case or
// filter.
Selection select_cases(const SelectionOptions& options);

// The files of the matrices. Throws CommandError (bad_input) for a matrix that is not shipped.
std::vector<InputFile> matrix_inputs(const SelectionOptions& options);  // no matrix = all shipped ones

// The error text for options that select no case: "no case of quick is selected", and which other shipped matrices have
// some.
std::string nothing_selected(const SelectionOptions& options);

}  // namespace cp_pool
