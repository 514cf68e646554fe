// A check of a fuzz target. If it does not hold, the process aborts, and the fuzzer reports the input.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace cp_pool::fuzz {

inline void require(bool holds, const char* claim) {
  if (holds) return;
  std::fprintf(stderr, "fuzz target: %s\n", claim);
  std::abort();
}

}  // namespace cp_pool::fuzz
