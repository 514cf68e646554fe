// Finds where the characters of UTF-8 text begin.
#pragma once

namespace cp_pool {

// Whether a byte of valid UTF-8 is the first one of a code point.
constexpr bool starts_code_point(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
}

}  // namespace cp_pool
