// Chooses how many threads the CPU operations of a rank use.
#pragma once

#include "cases/case.h"

namespace cp_pool {

// Returns a rank's share of the cores: those that this process may use, divided by the ranks on this host, at least 1.
int share_of_cores(int ranks_on_host);

// Returns how many threads a rank of `c` can use, at most `share`. Small problems get 1, because their operations end
// sooner than other threads wake up.
int threads_for(const Case& c, int share);

// Sets the number of threads of LibTorch's operations on the calling thread to threads_for(), or to OMP_NUM_THREADS if
// that variable is set.
void use_threads_for(const Case& c, int ranks_on_host);

}  // namespace cp_pool
