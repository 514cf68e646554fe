#include "driver/cli/program_paths.h"

#include <cstdlib>
#include <set>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/did_you_mean.h"
#include "driver/core/exit_code.h"

namespace cp_pool {
namespace {

// The existing folders of shipped matrices: of the installation, then of the sources that the program was built from.
std::vector<std::filesystem::path> matrix_folders() {
  std::vector<std::filesystem::path> folders;
  for (const std::filesystem::path& folder : {program_path().parent_path().parent_path() / "share/cp-pool/matrices",
                                              std::filesystem::path{CP_POOL_SOURCE_DIR "/cases/matrices"}}) {
    std::error_code ignored;
    if (std::filesystem::is_directory(folder, ignored)) folders.push_back(folder);
  }
  return folders;
}

}  // namespace

std::filesystem::path program_path() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

std::filesystem::path default_worker() {
  return program_path().parent_path() / "cp-pool-worker";
}

std::vector<std::string> shipped_matrices() {
  std::set<std::string> names;
  for (const std::filesystem::path& folder : matrix_folders()) {
    for (const auto& entry : std::filesystem::directory_iterator{folder}) {
      if (entry.path().extension() == ".json") names.insert(entry.path().stem().string());
    }
  }
  return {names.begin(), names.end()};
}

std::filesystem::path find_matrix(const std::string& name_or_file) {
  std::filesystem::path path{name_or_file};
  if (path.has_parent_path() || path.extension() == ".json") return path;
  for (const std::filesystem::path& folder : matrix_folders()) {
    std::filesystem::path file = folder / (name_or_file + ".json");
    if (std::filesystem::exists(file)) return file;
  }
  const std::vector<std::string> names = shipped_matrices();
  throw CommandError(ExitCode::bad_input,
                     fmt::format("there is no matrix '{}'{}; shipped are: {}; a file ends in .json", name_or_file,
                                 did_you_mean(name_or_file, names), fmt::join(names, ", ")));
}

std::optional<std::filesystem::path> state_folder() {
  const auto folder = [](const char* variable) -> std::optional<std::filesystem::path> {
    const char* const value = std::getenv(variable);
    if (value == nullptr || *value != '/') return std::nullopt;  // the XDG specification ignores relative paths
    return value;
  };
  if (const auto state = folder("XDG_STATE_HOME")) return *state / "cp-pool";
  if (const auto home = folder("HOME")) return *home / ".local" / "state" / "cp-pool";
  return std::nullopt;
}

}  // namespace cp_pool
