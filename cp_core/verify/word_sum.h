// The fingerprint of one tensor is a sum over its 8-byte words, so that it can be computed in any order. Each word is
// first mixed with its index.
#pragma once

#include <cstdint>

#include "cp_core/cuda/device_code.h"

namespace cp_pool::verify {

// The finaliser of MurmurHash3 (Appleby, public domain): every input bit reaches every output bit.
CP_POOL_DEVICE_CODE constexpr std::uint64_t avalanche(std::uint64_t z) {
  z = (z ^ (z >> 33U)) * 0xFF51AFD7ED558CCD;
  z = (z ^ (z >> 33U)) * 0xC4CEB9FE1A85EC53;
  return z ^ (z >> 33U);
}

// Returns the term of word number `at` in the sum.
CP_POOL_DEVICE_CODE constexpr std::uint64_t word_term(std::uint64_t word, std::uint64_t at) {
  return avalanche(word + avalanche((at + 1) * 0x9E3779B97F4A7C15));
}

}  // namespace cp_pool::verify
