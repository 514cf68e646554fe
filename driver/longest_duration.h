#pragma once

#include <chrono>

namespace cp_pool {

// The longest duration that an option or a message may set: sums and multiples of it stay within the range of Clock.
inline constexpr std::chrono::hours kLongestDuration{1000};

}  // namespace cp_pool
