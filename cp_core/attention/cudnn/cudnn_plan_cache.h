// Plans of cuDNN, kept for the process, and on disk for later ones where plan_store_folder says so.
#pragma once

#include <memory>

#include "cp_core/attention/cudnn/cudnn_graphs.h"

namespace cp_pool {

// The plan of this graph on the current device, loaded or built if nobody has asked for it lately. Any thread: one that
// asks for what another is building waits for it. Throws as build_cudnn_plan; a refusal is remembered like a plan.
std::shared_ptr<const CudnnPlan> cudnn_plan(const CudnnGraph& graph);

// True if the plan of this graph is there or being built.
bool cudnn_plan_is_known(const CudnnGraph& graph);

}  // namespace cp_pool
