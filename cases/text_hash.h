// A short name for a text, the same on every machine and in every build.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace cp_pool {

// Returns the 64-bit FNV-1a hash as 16 hexadecimal digits.
inline std::string text_hash(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3U;
  return fmt::format("{:016x}", hash);
}

}  // namespace cp_pool
