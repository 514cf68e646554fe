#pragma once

#include <string_view>

namespace cp_pool {

// Whether the whole text matches: '*' stands for any characters ('/' too, and none), '?' for any one.
bool glob_matches(std::string_view glob, std::string_view text);

bool has_wildcard(std::string_view glob);

}  // namespace cp_pool
