#include "cp_core/testing/gpu_fixture.h"

#include <cstdlib>

extern "C" cp_pool::CudaPart* cp_pool_cuda_part();

namespace cp_pool {

CudaPart& linked_cuda_part() {
  // Tests leave the user's plans of cuDNN alone (attention/plan_store.h).
  constexpr int kUnlessSet = 0;
  setenv("CP_POOL_PLAN_STORE", "off", kUnlessSet);
  return *cp_pool_cuda_part();
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
  CudaPart& part = linked_cuda_part();
  require_gpus(1, part.visible_devices());
  if (IsSkipped() || HasFatalFailure()) return;
  use_cuda_part(part);
  part.use_device(0);
}

}  // namespace cp_pool
