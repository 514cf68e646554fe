// Fixture for tests on GPUs. Such a test is skipped with a sentence if too few GPUs are visible. If the environment has
// CP_POOL_REQUIRE_GPU=N and the test needs no more than N GPUs, it fails instead.
#pragma once

#include <gtest/gtest.h>

#include "cp_core/cuda/device.h"

namespace cp_pool {

// Registers the CUDA part that is linked into this program, and returns it.
const CudaDevice& linked_cuda_device();

// Skips or fails the running test if `visible` is less than `needed`. To be called in SetUp.
void require_gpus(int needed, int visible);

// A test on the first visible GPU, in this process.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override;
};

}  // namespace cp_pool
