// Where the characters of UTF-8 begin.
#pragma once

namespace cp_pool {

// Of valid UTF-8: a byte that is not the second, third or fourth of a code point.
constexpr bool starts_code_point(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
}

}  // namespace cp_pool
