#include "cp_core/cuda/cuda_part.h"

#include <atomic>
#include <dlfcn.h>
#include <mutex>
#include <string>

#include "cp_core/cuda/module_path.h"

namespace cp_pool {
namespace {

constexpr const char* kModule = "libcp_core_cuda.so";
// What the module exports: gives its part, which lives as long as the process.
constexpr const char* kEntry = "cp_pool_cuda_part";

std::atomic<CudaPart*>& loaded() {
  static std::atomic<CudaPart*> part{nullptr};
  return part;
}

CudaPart& load() {
  const std::string path = module_path(kModule);
  const bool exists = path != kModule;
  // Symbols stay local: the module finds cp_core's in this program.
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    const std::string error = dlerror();
    if (exists) throw CudaUnavailable(error);
    throw CudaUnavailable(path +
                          " is neither beside this program nor in ../lib/cp-pool: cp-pool was built without CUDA (with "
                          "nvcc of CUDA 13 installed: tools/build release cuda_part)");
  }
  using Entry = CudaPart* (*)();
  auto* entry = reinterpret_cast<Entry>(dlsym(module, kEntry));
  if (entry == nullptr) throw CudaUnavailable(path + " has no " + kEntry);
  return *entry();
}

}  // namespace

CudaPart& load_cuda_part() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (CudaPart* part = loaded().load()) return *part;
  CudaPart& part = load();
  loaded().store(&part);
  return part;
}

void use_cuda_part(CudaPart& part) {
  loaded().store(&part);
}

CudaPart& cuda_part() {
  CudaPart* part = loaded().load();
  if (part == nullptr) throw CudaUnavailable("a CUDA tensor in a process that has not loaded the CUDA part");
  return *part;
}

void delay_point(const at::Device& device) {
  if (device.is_cuda()) cuda_part().random_delay();
}

}  // namespace cp_pool
