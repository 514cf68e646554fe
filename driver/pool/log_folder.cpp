#include "driver/pool/log_folder.h"

#include <algorithm>
#include <regex>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

namespace cp_pool {

namespace {

constexpr const char* kPools = "pools";

std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder, const std::regex& name) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator{folder}) {
    if (std::regex_match(entry.path().filename().string(), name)) found.push_back(entry.path());
  }
  return found;
}

}  // namespace

std::filesystem::path log_folder(const std::filesystem::path& run_dir, const PoolId& pool) {
  std::string name = fmt::format("{}-gen{}", pool.key, pool.generation);
  std::ranges::replace(name, '/', '-');
  return run_dir / kPools / name;
}

void remove_old_logs(const std::filesystem::path& run_dir) {
  static const std::regex pool{R"([a-z]+-\d+-gen\d+)"};
  static const std::regex log{R"((rank\d+\.std(out|err)|launcher\.stderr)\.log)"};
  if (!std::filesystem::is_directory(run_dir / kPools)) return;
  for (const auto& folder : entries_of(run_dir / kPools, pool)) {
    if (!std::filesystem::is_directory(folder)) continue;
    for (const auto& file : entries_of(folder, log)) {
      if (!std::filesystem::is_directory(std::filesystem::symlink_status(file))) std::filesystem::remove(file);
    }
    std::error_code not_empty;
    std::filesystem::remove(folder, not_empty);
  }
}

}  // namespace cp_pool
