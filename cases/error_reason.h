// Describes why a file could not be opened, for error messages.
#pragma once

#include <string>
#include <string_view>
#include <system_error>

namespace cp_pool {

// "No such file or directory", "it is a folder"; of a relative path whose working directory was deleted meanwhile "the
// working directory is gone"; of too many descriptors "too many open files: the limit is 256 (ulimit -n)".
std::string error_reason(const std::error_code& error, std::string_view path = {});

}  // namespace cp_pool
