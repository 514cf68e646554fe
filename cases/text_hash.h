// A short name for a text, the same on every machine and in every build.
#pragma once

#include <string>
#include <string_view>

namespace cp_pool {

// Returns the 64-bit FNV-1a hash as 16 hexadecimal digits.
std::string text_hash(std::string_view text);

}  // namespace cp_pool
