// What a process would else do in its first case: loading the kernels of cuBLAS and cuDNN takes most of a second.
#pragma once

#include <vector>

#include "cp_core/attention/backend.h"

namespace cp_pool {

// Small computations for the current device, on which nothing depends: one with each library. Pieces set the device
// of their thread.
std::vector<Preparation> warm_ups();

}  // namespace cp_pool
