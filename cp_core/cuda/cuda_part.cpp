#include "cp_core/cuda/cuda_part.h"

#include <dlfcn.h>
#include <mutex>
#include <string>

#include "cp_core/cuda/module_path.h"

namespace cp_pool {
namespace {

constexpr const char* kModule = "libcp_core_cuda.so";
// The function that the module exports. It gives all tables.
constexpr const char* kEntry = "cp_pool_give_cuda_part";

void load() {
  const std::string path = module_path(kModule);
  const bool exists = path != kModule;
  // The module resolves cp_core's symbols in the program, or in this library once its symbols are global.
  if (const std::string library = own_library(); !library.empty()) {
    dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
  }
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    const std::string error = dlerror();
    if (exists) throw CudaUnavailable(error);
    throw CudaUnavailable(path +
                          " is neither beside this program nor in ../lib/cp-pool: cp-pool was built without CUDA (with "
                          "nvcc of CUDA 13 installed: tools/build release cuda_part)");
  }
  using Entry = void (*)();
  auto* entry = reinterpret_cast<Entry>(dlsym(module, kEntry));
  if (entry == nullptr) throw CudaUnavailable(path + " has no " + kEntry);
  entry();
}

}  // namespace

void load_cuda_part() {
  static std::mutex mutex;
  static bool loaded = false;
  const std::lock_guard lock(mutex);
  if (loaded) return;
  load();
  loaded = true;
}

void detail::throw_no_cuda_part() {
  throw CudaUnavailable("a CUDA tensor in a process that has not loaded the CUDA part");
}

}  // namespace cp_pool
