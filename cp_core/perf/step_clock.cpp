#include "cp_core/perf/step_clock.h"

#include <chrono>
#include <vector>

#include "cp_core/cuda/cuda_part.h"
#include "cp_core/perf/cuda_steps.h"

namespace cp_pool {
namespace {

using std::chrono::steady_clock;

// The clock for a CPU, where a step is complete when its call returns.
class HostStepClock final : public StepClock {
 public:
  void begin() override { begin_ = steady_clock::now(); }
  void end() override {
    steps_ms_.push_back(std::chrono::duration<double, std::milli>(steady_clock::now() - begin_).count());
  }
  [[nodiscard]] bool complete(std::size_t step) const override { return step < steps_ms_.size(); }
  [[nodiscard]] double milliseconds(std::size_t step) const override { return steps_ms_.at(step); }

 private:
  steady_clock::time_point begin_;
  std::vector<double> steps_ms_;
};

}  // namespace

std::unique_ptr<StepClock> make_step_clock(const at::Device& device) {
  if (device.is_cuda()) return cuda_part<CudaSteps>().make_clock();
  return std::make_unique<HostStepClock>();
}

}  // namespace cp_pool
