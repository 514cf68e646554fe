// How many threads the CPU operations of a rank use.
#pragma once

#include "cases/case.h"

namespace cp_pool {

// A rank's share of the cores: those this process may use, divided by the ranks on this host, at least one.
int share_of_cores(int ranks_on_host);

// The threads that a rank of `c` has use for, at most `share`: 1 for small problems, whose operations end sooner than
// other threads wake up.
int threads_for(const Case& c, int share);

// Gives LibTorch's operations on the calling thread that many threads; or as many as OMP_NUM_THREADS says, if it is
// set.
void use_threads_for(const Case& c, int ranks_on_host);

}  // namespace cp_pool
