// Records steps on a GPU as CUDA graphs, and times them by CUDA events.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace cp_pool {

// Times steps. On a GPU the device takes the times, since it runs asynchronously to the host. Steps are counted from 0.
// For each step call begin(), enqueue the step, call end().
class StepClock {
 public:
  StepClock() = default;
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;
  virtual ~StepClock() = default;

  // Mark the beginning and the end of a step on the current stream. Neither waits, nor allocates anything that the
  // device has to wait for.
  virtual void begin() = 0;
  virtual void end() = 0;

  // Whether the device has reached the end of the step.
  [[nodiscard]] virtual bool complete(std::size_t step) const = 0;
  // How long a step took; the step must be complete.
  [[nodiscard]] virtual double milliseconds(std::size_t step) const = 0;
};

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
