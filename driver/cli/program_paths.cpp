#include "driver/cli/program_paths.h"

#include <cstdlib>
#include <map>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/did_you_mean.h"
#include "driver/core/exit_code.h"
#include "driver/core/mapped.h"

namespace cp_pool {
namespace {

// The files of the shipped matrices by name: those of the installation come before those of the sources that the
// program was built from.
std::map<std::string, std::filesystem::path> matrix_files() {
  std::map<std::string, std::filesystem::path> files;
  for (const std::filesystem::path& folder : {program_path().parent_path().parent_path() / "share/cp-pool/matrices",
                                              std::filesystem::path{CP_POOL_SOURCE_DIR "/cases/matrices"}}) {
    std::error_code ignored;  // one of the folders may be missing
    for (const auto& entry : std::filesystem::directory_iterator{folder, ignored}) {
      if (entry.path().extension() == ".json") files.emplace(entry.path().stem().string(), entry.path());
    }
  }
  return files;
}

}  // namespace

std::filesystem::path program_path() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

std::filesystem::path default_worker() {
  return program_path().parent_path() / "cp-pool-worker";
}

std::vector<std::string> shipped_matrices() {
  return mapped(matrix_files(), [](const auto& named) { return named.first; });
}

std::filesystem::path find_matrix(const std::string& name_or_file) {
  std::filesystem::path path{name_or_file};
  if (path.has_parent_path() || path.extension() == ".json") return path;
  const auto files = matrix_files();
  if (const auto file = files.find(name_or_file); file != files.end()) return file->second;
  const std::vector<std::string> names = shipped_matrices();
  throw CommandError(ExitCode::bad_input, "there is no matrix '{}'{}; shipped are: {}; a file ends in .json",
                     name_or_file, did_you_mean(name_or_file, names), fmt::join(names, ", "));
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
