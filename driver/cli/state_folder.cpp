#include "driver/cli/state_folder.h"

#include <cstdlib>

namespace cp_pool {

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
