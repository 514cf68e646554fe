// The module as a program loads it: on a machine with GPUs or without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/cuda/cuda_part.h"

namespace cp_pool {
namespace {

std::string error_of_using(CudaPart& part, int device) {
  try {
    part.use_device(device);
  } catch (const CudaUnavailable& error) {
    return error.what();
  }
  return "";
}

TEST(CudaModule, IsNotThereBeforeItIsLoaded) {
  EXPECT_THROW(cuda_part(), CudaUnavailable);
}

TEST(CudaModule, IsLoadedOnce) {
  CudaPart& part = load_cuda_part();
  EXPECT_EQ(&load_cuda_part(), &part);
  EXPECT_EQ(&cuda_part(), &part);
}

TEST(CudaModule, CountsGpusWithoutADriverToo) {
  EXPECT_GE(load_cuda_part().visible_devices(), 0);
}

TEST(CudaModule, SaysWhyAGpuCannotBeUsed) {
  CudaPart& part = load_cuda_part();
  const int count = part.visible_devices();
  EXPECT_THAT(error_of_using(part, count), testing::HasSubstr(count == 0 ? "no usable GPU: " : "rank needs GPU"));
}

}  // namespace
}  // namespace cp_pool
