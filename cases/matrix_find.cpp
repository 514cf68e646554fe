#include "cases/matrix_find.h"

#include <filesystem>
#include <set>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_error.h"
#include "cases/did_you_mean.h"

namespace cp_pool {

namespace fs = std::filesystem;

std::string source_matrix_folder() {
  return CP_POOL_SOURCE_MATRICES;
}

std::vector<std::string> matrix_names(std::span<const std::string> folders) {
  std::set<std::string> names;
  for (const std::string& folder : folders) {
    std::error_code error;
    for (fs::directory_iterator file(folder, error); !error && file != fs::directory_iterator();
         file.increment(error)) {
      if (file->path().extension() == ".json") names.insert(file->path().stem());
    }
  }
  return {names.begin(), names.end()};
}

std::string find_matrix(const std::string& name_or_path, std::span<const std::string> folders) {
  if (name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json")) return name_or_path;
  for (const std::string& folder : folders) {
    const fs::path path = fs::path(folder) / (name_or_path + ".json");
    std::error_code error;
    if (fs::exists(path, error)) return path;
  }
  const std::vector<std::string> known = matrix_names(folders);
  throw CaseError(
      fmt::format("unknown matrix '{}'{} (known: {}; looked in {}; a file is given as a path that ends in "
                  ".json)",
                  name_or_path, did_you_mean(name_or_path, known), join_names(known), fmt::join(folders, ", ")));
}

std::vector<MatrixCase> load_cases(std::span<const std::string> names_or_paths, std::string_view size,
                                   std::span<const std::string> folders) {
  std::vector<Matrix> matrices;
  for (const std::string& name_or_path : names_or_paths) {
    matrices.push_back(load_matrix(find_matrix(name_or_path, folders)));
  }
  return expand(matrices, size);
}

}  // namespace cp_pool
