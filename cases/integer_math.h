#pragma once

#include <cstdint>

namespace cp_pool {

// Returns a / b rounded toward -inf, for b > 0.
constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a / b - static_cast<std::int64_t>(a % b < 0);
}

}  // namespace cp_pool
