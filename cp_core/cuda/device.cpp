#include "cp_core/cuda/device.h"

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <nccl.h>

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>

namespace cp_pool::cuda {
namespace {

void require_success(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();  // clears the error, so that the next call does not report it again
  throw CudaUnavailable(fmt::format("{}: {}", what, cudaGetErrorString(error)));
}

std::string dotted(int version, int major_unit, int minor_unit) {
  return fmt::format("{}.{}", version / major_unit, version % major_unit / minor_unit);
}

}  // namespace

void use_device(int index) {
  int count = 0;
  require_success(cudaGetDeviceCount(&count), "no usable GPU");
  if (index >= count) {
    throw CudaUnavailable(fmt::format("this rank needs GPU {}, but only {} {} visible (CUDA_VISIBLE_DEVICES)", index,
                                      count, count == 1 ? "is" : "are"));
  }
  require_success(cudaSetDevice(index), fmt::format("GPU {} cannot be used", index));
  // Creates the context.
  require_success(cudaFree(nullptr), fmt::format("no CUDA context could be created on GPU {}", index));
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
}

int visible_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return count;
}

bool takes_one_process(int index) {
  int mode = cudaComputeModeDefault;
  require_success(cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, index), fmt::format("GPU {}", index));
  return mode == cudaComputeModeExclusiveProcess;
}

std::string device_name(int index) {
  cudaDeviceProp properties{};
  require_success(cudaGetDeviceProperties(&properties, index), fmt::format("GPU {}", index));
  return fmt::format("{}, compute capability {}.{}, {} GiB", static_cast<const char*>(properties.name),
                     properties.major, properties.minor, properties.totalGlobalMem >> 30U);
}

std::string versions() {
  int driver = 0;
  int runtime = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  int nccl = 0;
  (void)ncclGetVersion(&nccl);
  const auto cudnn = static_cast<int>(cudnnGetVersion());
  return fmt::format("CUDA {} (driver {}), cuDNN {}.{}.{}, NCCL {}.{}.{}", dotted(runtime, 1000, 10),
                     dotted(driver, 1000, 10), cudnn / 10000, cudnn / 100 % 100, cudnn % 100, nccl / 10000,
                     nccl / 100 % 100, nccl % 100);
}

CudaMemory memory() {
  const auto index = c10::cuda::current_device();
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(index);
  std::size_t free_bytes = 0;
  std::size_t device_bytes = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &device_bytes));
  return {.allocated_bytes = static_cast<std::size_t>(stats.allocated_bytes[0].current),
          .reserved_bytes = static_cast<std::size_t>(stats.reserved_bytes[0].current),
          .device_bytes = at::cuda::getCurrentDeviceProperties()->totalGlobalMem,
          .free_bytes = free_bytes};
}

void synchronize() {
  c10::cuda::device_synchronize();
}

void reset(std::uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(at::Device(at::kCUDA, c10::cuda::current_device()));
  generator.set_current_seed(seed);
  release_cached_memory();
}

void release_cached_memory() {
  c10::cuda::CUDACachingAllocator::emptyCache();
}

}  // namespace cp_pool::cuda
