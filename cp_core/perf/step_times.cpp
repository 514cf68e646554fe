#include "cp_core/perf/step_times.h"

#include <chrono>
#include <memory>
#include <thread>

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

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

std::unique_ptr<StepClock> make_step_clock(const at::Device& device) {
  if (device.is_cuda()) return cuda_part<CudaSteps>().make_clock();
  return std::make_unique<HostStepClock>();
}

// How many steps the host may be ahead of the device: the step that the device works on and the next one. More steps
// would only need more memory, since memory that a side stream has used is free again only when the device has finished
// with it.
constexpr std::size_t kQueuedSteps = 2;

// Polls for the end of a step. If a step takes long, calls synchronize(), which ends at the deadline and names the
// operation that hangs.
void wait_for(const StepClock& clock, std::size_t step, Communicator& cp) {
  constexpr std::chrono::seconds kLong{1};
  auto ask = steady_clock::now() + kLong;
  while (!clock.complete(step)) {
    if (steady_clock::now() >= ask) {
      cp.synchronize("timed steps");
      ask = steady_clock::now() + kLong;
    }
    std::this_thread::yield();
  }
}

}  // namespace

MeetingPoint::MeetingPoint(Communicator& cp, const at::Device& device)
    : cp_(cp), here_(at::zeros({1}, at::TensorOptions(device).dtype(at::kInt))) {}

void MeetingPoint::pass(std::string_view what) {
  cp_.all_reduce(here_, ReduceOp::max, what)->wait();
}

std::vector<double> time_steps(Communicator& cp, const at::Device& device, const PerfOptions& options,
                               const std::function<void()>& step) {
  const auto warmup = static_cast<std::size_t>(options.warmup);
  const std::size_t steps = warmup + static_cast<std::size_t>(options.iterations);
  const std::unique_ptr<StepClock> clock = make_step_clock(device);
  MeetingPoint start(cp, device);
  for (std::size_t i = 0; i < steps; ++i) {
    if (i >= kQueuedSteps) wait_for(*clock, i - kQueuedSteps, cp);
    start.pass(fmt::format("start of timed step {}", i));
    clock->begin();
    step();
    clock->end();
  }
  wait_for(*clock, steps - 1, cp);
  cp.synchronize("timed steps");
  std::vector<double> times_ms;
  times_ms.reserve(steps - warmup);
  for (std::size_t i = warmup; i < steps; ++i) times_ms.push_back(clock->milliseconds(i));
  return times_ms;
}

}  // namespace cp_pool
