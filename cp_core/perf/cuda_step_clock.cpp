#include <vector>

#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include "cp_core/perf/cuda_steps.h"

namespace cp_pool::cuda {
namespace {

class CudaStepClock final : public StepClock {
 public:
  void begin() override { begins_.emplace_back(cudaEventDefault).record(c10::cuda::getCurrentCUDAStream()); }
  void end() override { ends_.emplace_back(cudaEventDefault).record(c10::cuda::getCurrentCUDAStream()); }
  [[nodiscard]] bool complete(std::size_t step) const override { return ends_.at(step).query(); }
  [[nodiscard]] double milliseconds(std::size_t step) const override {
    return begins_.at(step).elapsed_time(ends_.at(step));
  }

 private:
  std::vector<c10::cuda::CUDAEvent> begins_;
  std::vector<c10::cuda::CUDAEvent> ends_;
};

}  // namespace

std::unique_ptr<StepClock> make_step_clock() {
  return std::make_unique<CudaStepClock>();
}

}  // namespace cp_pool::cuda
