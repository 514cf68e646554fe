// From what a user types after --matrix to cases.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cases/matrix.h"

namespace cp_pool {

// cases/matrices of the source tree that this was built from. It need not exist where it runs.
std::string source_matrix_folder();

// The names of the matrices in those folders (NAME.json), sorted. Folders that do not exist hold none.
std::vector<std::string> matrix_names(std::span<const std::string> folders);

// The file meant by a name ("quick": the first folder that has quick.json) or a path (anything with a '/' or ending in
// .json). Throws CaseError for an unknown name, with the known ones.
std::string find_matrix(const std::string& name_or_path, std::span<const std::string> folders);

// All of it: finds, loads and expands. Throws CaseError, also for a matrix that is named twice.
std::vector<MatrixCase> load_cases(std::span<const std::string> names_or_paths, std::string_view size,
                                   std::span<const std::string> folders);

}  // namespace cp_pool
