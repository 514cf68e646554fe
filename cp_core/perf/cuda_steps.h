// Steps on a GPU: recorded as a CUDA graph, and timed by CUDA events.
#pragma once

#include <functional>
#include <memory>

#include "cp_core/perf/captured_step.h"
#include "cp_core/perf/step_clock.h"

namespace cp_pool {

// Functions of the CUDA part.
namespace cuda {

// What `step` enqueues on the current stream, and on those that it makes wait for it. `step` must have run before; it
// throws where it waits for the device. Waits for the device itself before.
std::unique_ptr<CapturedStep> capture(const std::function<void()>& step);
// CUDA events on the current stream.
std::unique_ptr<StepClock> make_step_clock();

}  // namespace cuda

struct CudaSteps {
  decltype(&cuda::capture) capture;
  decltype(&cuda::make_step_clock) make_clock;
};

}  // namespace cp_pool
