// A step as a CUDA graph.
#pragma once

#include <functional>
#include <memory>

#include "cp_core/perf/captured_step.h"

namespace cp_pool::cuda {

// Implements CudaPart::capture.
std::unique_ptr<CapturedStep> capture(const std::function<void()>& step);

}  // namespace cp_pool::cuda
