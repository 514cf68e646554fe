// The folder in which cp-pool keeps state from one call to the next.
#pragma once

#include <filesystem>
#include <optional>

namespace cp_pool {

// Returns cp-pool in $XDG_STATE_HOME, or else in ~/.local/state; nullopt if there is no home either. The folder need
// not exist.
std::optional<std::filesystem::path> state_folder();

}  // namespace cp_pool
