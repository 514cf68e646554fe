#pragma once

#include <string_view>

namespace cp_pool {

// Whether the whole text matches the glob: '*' stands for any number of characters ('/' too), '?' for exactly one.
bool glob_matches(std::string_view glob, std::string_view text);

bool has_wildcard(std::string_view glob);

}  // namespace cp_pool
