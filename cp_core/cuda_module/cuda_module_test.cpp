// Loads the module as a program does. Runs on machines with and without GPUs.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/attention/cuda_backends.h"
#include "cp_core/comm/nccl/gpu_groups.h"
#include "cp_core/cuda/device.h"
#include "cp_core/perf/cuda_steps.h"
#include "cp_core/thd/row_kernels.h"
#include "cp_core/verify/cuda_kernels.h"

namespace cp_pool {
namespace {

std::string error_of_using(int device) {
  try {
    cuda_device().use_device(device);
  } catch (const CudaUnavailable& error) {
    return error.what();
  }
  return "";
}

TEST(CudaModule, IsNotThereBeforeItIsLoaded) {
  EXPECT_THROW(cuda_device(), CudaUnavailable);
}

TEST(CudaModule, IsLoadedOnce) {
  load_cuda_part();
  const CudaDevice& device = cuda_device();
  load_cuda_part();
  EXPECT_EQ(&cuda_device(), &device);
}

// True if no pointer of the table, a struct of pointers to functions, is null.
template <typename Table>
bool is_complete(const Table& table) {
  std::array<void (*)(), sizeof(Table) / sizeof(void (*)())> functions{};
  static_assert(sizeof functions == sizeof(Table));
  std::memcpy(functions.data(), &table, sizeof functions);
  return std::ranges::find(functions, nullptr) == functions.end();
}

TEST(CudaModule, GivesWhatEachFolderCalls) {
  load_cuda_part();
  EXPECT_TRUE(is_complete(cuda_part<CudaDevice>()));
  EXPECT_TRUE(is_complete(cuda_part<RowKernels>()));
  EXPECT_TRUE(is_complete(cuda_part<GpuGroups>()));
  EXPECT_TRUE(is_complete(cuda_part<CudaBackends>()));
  EXPECT_TRUE(is_complete(cuda_part<CudaSteps>()));
  EXPECT_TRUE(is_complete(cuda_part<VerifyKernels>()));
}

TEST(CudaModule, CountsGpusWithoutADriverToo) {
  load_cuda_part();
  EXPECT_GE(cuda_device().visible_devices(), 0);
}

TEST(CudaModule, SaysWhyAGpuCannotBeUsed) {
  load_cuda_part();
  const int count = cuda_device().visible_devices();
  EXPECT_THAT(error_of_using(count), testing::HasSubstr(count == 0 ? "no usable GPU: " : "rank needs GPU"));
}

}  // namespace
}  // namespace cp_pool
