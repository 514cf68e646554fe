// What the tests share that run many cases and look for growth.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace cp_pool::test {

// The number in this environment variable.
inline int from_environment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

// The most of the last quarter minus the most of the second quarter. In the first quarter, the warm-up, pools of every
// size have been started and lost, and buffers have grown.
inline std::int64_t growth_after_warm_up(const std::vector<std::int64_t>& samples) {
  const auto quarter = static_cast<std::ptrdiff_t>(samples.size() / 4);
  return *std::max_element(samples.end() - quarter, samples.end()) -
         *std::max_element(samples.begin() + quarter, samples.begin() + 2 * quarter);
}

}  // namespace cp_pool::test
