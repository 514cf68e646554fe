// Keeps plans of cuDNN in memory and, where plan_store_folder() names a folder, on disk for later processes.
#pragma once

#include <memory>

#include "cp_core/attention/cudnn/cudnn_graphs.h"

namespace cp_pool {

// Returns the plan of this graph on the current device, and loads or builds it if it is not in memory. Callable from
// any thread; a thread that asks for a plan which another is building waits for it. Throws as build_cudnn_plan; a
// refusal is remembered like a plan.
std::shared_ptr<const CudnnPlan> cudnn_plan(const CudnnGraph& graph);

// True if the plan of this graph is in memory, refused or being built.
bool cudnn_plan_is_known(const CudnnGraph& graph);

}  // namespace cp_pool
