#include "cp_core/cuda/driver_calls.h"

#include <cuda_runtime_api.h>

#include <c10/cuda/CUDAException.h>
#include <c10/util/Exception.h>

namespace cp_pool::cuda {
namespace {

constexpr unsigned kVersion = 12000;  // the CUDA version since which these functions are unchanged

template <typename Function>
Function find(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  C10_CUDA_CHECK(cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result));
  TORCH_CHECK(result == cudaDriverEntryPointSuccess, "CUDA's driver has no ", name);
  return reinterpret_cast<Function>(found);
}

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  static const auto error_string = find<decltype(&cuGetErrorString)>("cuGetErrorString");
  const char* text = nullptr;
  if (error_string(result, &text) != CUDA_SUCCESS) text = "unknown error";
  TORCH_CHECK(false, what, ": ", text);
}

CUresult get_number(const void* address, std::uint64_t& number) {
  static const auto get_attribute = find<decltype(&cuPointerGetAttribute)>("cuPointerGetAttribute");
  unsigned long long value = 0;
  const CUresult result = get_attribute(&value, CU_POINTER_ATTRIBUTE_BUFFER_ID, reinterpret_cast<CUdeviceptr>(address));
  number = value;
  return result;
}

}  // namespace

Allocation allocation_of(const void* address) {
  static const auto get_range = find<decltype(&cuMemGetAddressRange)>("cuMemGetAddressRange");
  CUdeviceptr first = 0;
  Allocation allocation;
  check(get_range(&first, &allocation.bytes, reinterpret_cast<CUdeviceptr>(address)), "cuMemGetAddressRange");
  allocation.first =
      reinterpret_cast<const std::byte*>(first);  // NOLINT(performance-no-int-to-ptr): as the driver has it
  check(get_number(address, allocation.number), "cuPointerGetAttribute");
  return allocation;
}

std::uint64_t allocation_number(const void* address) {
  std::uint64_t number = 0;
  return get_number(address, number) == CUDA_SUCCESS ? number : 0;
}

StreamOperation write_word(void* device_address, std::uint32_t value) {
  StreamOperation operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = reinterpret_cast<CUdeviceptr>(device_address);
  operation.writeValue.value = value;
  return operation;
}

StreamOperation wait_for_bits(void* device_address, std::uint32_t bits) {
  StreamOperation operation{};
  operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operation.waitValue.address = reinterpret_cast<CUdeviceptr>(device_address);
  operation.waitValue.value = bits;
  operation.waitValue.flags = CU_STREAM_WAIT_VALUE_AND;
  return operation;
}

void enqueue(std::span<StreamOperation> operations, CUstream stream) {
  static const auto batch = find<decltype(&cuStreamBatchMemOp)>("cuStreamBatchMemOp");
  constexpr std::size_t kMost = 256;  // operations of one call
  while (!operations.empty()) {
    const auto some = operations.first(std::min(kMost, operations.size()));
    operations = operations.subspan(some.size());
    check(batch(stream, static_cast<unsigned>(some.size()), some.data(), 0), "cuStreamBatchMemOp");
  }
}

}  // namespace cp_pool::cuda
