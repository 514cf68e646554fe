#include "cp_core/testing/gpu_fixture.h"

#include <cstdlib>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "cp_core/testing/busy_gpu.h"

extern "C" void cp_pool_give_cuda_part();

namespace cp_pool {

void test::keep_gpu_busy(std::int64_t nanoseconds) {
  if (nanoseconds <= 0) return;
  launch_busy_kernel(static_cast<std::uint64_t>(nanoseconds), c10::cuda::getCurrentCUDAStream().stream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

const CudaDevice& linked_cuda_device() {
  // Keeps tests from using the user's stored cuDNN plans (attention/cudnn/plan_store.h).
  constexpr int kUnlessSet = 0;
  setenv("CP_POOL_PLAN_STORE", "off", kUnlessSet);
  cp_pool_give_cuda_part();
  return cuda_device();
}

void require_gpus(int needed, int visible) {
  if (visible >= needed) return;
  const char* required = std::getenv("CP_POOL_REQUIRE_GPU");
  if (required != nullptr && needed <= std::atoi(required)) {
    FAIL() << "CP_POOL_REQUIRE_GPU=" << required << ", and this test needs " << needed << " GPUs: " << visible
           << " are visible";
  }
  GTEST_SKIP() << "needs " << needed << " GPUs: " << visible << " are visible";
}

void GpuTest::SetUp() {
  const CudaDevice& device = linked_cuda_device();
  require_gpus(1, device.visible_devices());
  if (IsSkipped() || HasFatalFailure()) return;
  device.use_device(0);
}

}  // namespace cp_pool
