// Where cp-pool keeps what it is to know the next time.
#pragma once

#include <filesystem>
#include <optional>

namespace cp_pool {

// cp-pool in $XDG_STATE_HOME, else in ~/.local/state; nullopt: there is no home either. It need not exist.
std::optional<std::filesystem::path> state_folder();

}  // namespace cp_pool
