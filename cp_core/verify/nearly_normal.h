// The number stream of the inputs. Number i is a function of (start, i) alone and is made in integer arithmetic, so
// that a CPU and a GPU make the same bits in any order.
#pragma once

#include <cstdint>

#include "cp_core/cuda/device_code.h"

namespace cp_pool::verify {

inline constexpr std::uint64_t kGoldenGamma = 0x9E3779B97F4A7C15;

// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
CP_POOL_DEVICE_CODE constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EB;
  return z ^ (z >> 31U);
}

// Returns number i: nearly normal with mean 0 and standard deviation 1.
CP_POOL_DEVICE_CODE constexpr float nearly_normal(std::uint64_t start, std::uint64_t i) {
  const std::uint64_t bits = mix(start + i * kGoldenGamma);
  const auto lanes = (bits & 0xFFFF) + ((bits >> 16U) & 0xFFFF) + ((bits >> 32U) & 0xFFFF) + (bits >> 48U);
  // Four lanes, each uniform in 0..65535: mean 131070, standard deviation 65536 / sqrt(3).
  const auto centred = static_cast<std::int32_t>(lanes) - 131070;
  constexpr float kOverDeviation = 1.7320508F / 65536.0F;
  return static_cast<float>(centred) * kOverDeviation;
}

}  // namespace cp_pool::verify
