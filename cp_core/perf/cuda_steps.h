// Records steps on a GPU as CUDA graphs, and times them by CUDA events.
#pragma once

#include <functional>
#include <memory>

#include "cp_core/perf/step_clock.h"

namespace cp_pool {

// A step that was recorded once and can be enqueued again as one launch, without the host's work for each kernel.
class CapturedStep {
 public:
  CapturedStep() = default;
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;
  virtual ~CapturedStep() = default;

  // Enqueues the step on the current stream. Reads and writes the memory that was captured.
  virtual void replay() = 0;
};

// Functions of the CUDA part.
namespace cuda {

// Captures the work that `step` enqueues on the current stream, and on streams that it makes wait for the current one.
// Waits for the device first. `step` must have run before; a wait for the device inside it throws.
std::unique_ptr<CapturedStep> capture(const std::function<void()>& step);
// Returns a clock that records CUDA events on the current stream.
std::unique_ptr<StepClock> make_step_clock();

}  // namespace cuda

struct CudaSteps {
  decltype(&cuda::capture) capture;
  decltype(&cuda::make_step_clock) make_clock;
};

}  // namespace cp_pool
