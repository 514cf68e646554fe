// Times steps. On a GPU the device takes the times, since it runs asynchronously to the host.
#pragma once

#include <cstddef>
#include <memory>

#include <c10/core/Device.h>

namespace cp_pool {

// Steps are counted from 0. For each step call begin(), enqueue the step, call end().
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

// Makes the clock for ranks on this device: steady_clock on a CPU, CUDA events on a GPU.
std::unique_ptr<StepClock> make_step_clock(const at::Device& device);

}  // namespace cp_pool
