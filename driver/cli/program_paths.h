// The paths of the parts of this installation, and of what cp-pool keeps from one call to the next.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace cp_pool {

// Returns the path of the running binary, with symbolic links resolved. Throws std::filesystem::filesystem_error if
// /proc cannot be read.
std::filesystem::path program_path();

// Returns the path of cp-pool-worker beside the program.
std::filesystem::path default_worker();

// Returns the file of a matrix argument, which is a path if it holds a '/' or ends in .json, and the name of a shipped
// matrix otherwise. Throws CommandError (bad_input) that lists the shipped names.
std::filesystem::path find_matrix(const std::string& name_or_file);

// Returns the names of the shipped matrices, sorted.
std::vector<std::string> shipped_matrices();

// Returns cp-pool in $XDG_STATE_HOME, or else in ~/.local/state; nullopt if there is no home either. The folder need
// not exist.
std::optional<std::filesystem::path> state_folder();

}  // namespace cp_pool
