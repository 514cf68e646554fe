// Describes why a file could not be opened, for error messages.
#pragma once

#include <string>
#include <string_view>
#include <system_error>

namespace cp_pool {

// Returns the reason, such as "No such file or directory" or "it is a folder". For a relative path whose working
// directory has been deleted it is "the working directory is gone", and for too many file descriptors "too many open
// files: the limit is 256 (ulimit -n)".
std::string error_reason(const std::error_code& error, std::string_view path = {});

}  // namespace cp_pool
