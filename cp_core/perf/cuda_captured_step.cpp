#include "cp_core/perf/cuda_captured_step.h"

#include <ATen/cuda/CUDAGraph.h>
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
    graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
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
  // The step's own error is the one to be told.
  void end_capture_of_failure() noexcept {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
      (void)cudaGetLastError();
    }
  }

  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<CapturedStep> capture(const std::function<void()>& step) {
  return std::make_unique<CudaCapturedStep>(step);
}

}  // namespace cp_pool::cuda
