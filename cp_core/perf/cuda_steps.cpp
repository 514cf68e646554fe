#include "cp_core/perf/cuda_steps.h"

#include <vector>

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace cp_pool::cuda {
namespace {

class CudaCapturedStep final : public CapturedStep {
 public:
  explicit CudaCapturedStep(const std::function<void()>& step) {
    c10::cuda::device_synchronize();
    // The default stream cannot be captured.
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    try {
      step();
    } catch (...) {
      end_capture_of_failure();
      throw;
    }
    graph_.capture_end();
  }

  void replay() override { graph_.replay(); }

 private:
  // Ends the capture without an error of its own, so that the step's error is reported.
  void end_capture_of_failure() noexcept {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
      (void)cudaGetLastError();
      leave_pool();
    }
  }

  // CUDA refuses to end a capture with a stream that has not been joined again. LibTorch's allocators would then keep
  // allocating from the capture's pool for the rest of the process.
  void leave_pool() const noexcept {
    const c10::DeviceIndex device = c10::cuda::current_device();
    const auto attempt = [](const std::function<void()>& body) {
      try {
        body();
      } catch (const std::exception&) {  // LibTorch has left the pool already
        return;
      }
    };
    attempt([&] {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(device, pool_);
      c10::cuda::CUDACachingAllocator::releasePool(device, pool_);
    });
    attempt([&] {
      at::HostAllocator* const of_host = at::getHostAllocator(at::kCUDA);
      of_host->end_allocate_to_pool(pool_);
      of_host->release_pool(pool_);
    });
  }

  at::cuda::MempoolId_t pool_ = at::cuda::graph_pool_handle();
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<CapturedStep> capture(const std::function<void()>& step) {
  return std::make_unique<CudaCapturedStep>(step);
}

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
