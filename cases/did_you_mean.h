// Suggests the known name that is nearest to an unknown one, for error messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cp_pool {

// Returns "; did you mean 'heads'?", or an empty text if no known name is near.
std::string did_you_mean(std::string_view unknown, const std::vector<std::string>& known);

// "a, b, c"
std::string join_names(const std::vector<std::string>& names);

}  // namespace cp_pool
