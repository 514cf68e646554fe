#include "cases/text_hash.h"

#include <cstdint>

#include <fmt/format.h>

namespace cp_pool {

std::string text_hash(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3U;
  return fmt::format("{:016x}", hash);
}

}  // namespace cp_pool
