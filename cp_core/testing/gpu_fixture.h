// What tests on GPUs share. Without enough visible GPUs such a test is skipped, with a sentence; if
// CP_POOL_REQUIRE_GPU=N in the environment says that N are there, and it needs no more, it fails instead.
#pragma once

#include <gtest/gtest.h>

#include "cp_core/cuda/device.h"

namespace cp_pool {

// Gives this program the CUDA part that is linked into it.
const CudaDevice& linked_cuda_device();

// Skips or fails the running test if fewer than `needed` of `visible` GPUs are there. For SetUp.
void require_gpus(int needed, int visible);

// A test on the first visible GPU, in this process.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override;
};

}  // namespace cp_pool
