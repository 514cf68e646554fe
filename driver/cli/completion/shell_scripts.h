// Scripts that complete command lines of cp-pool in a shell. They call `cp-pool completion words ..`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cp_pool {

std::vector<std::string> completion_shells();  // bash, zsh, fish

// Throws std::logic_error for any other shell.
std::string completion_script(std::string_view shell);

}  // namespace cp_pool
