#include "cp_core/cuda/cuda_part.h"

#include <array>
#include <dlfcn.h>
#include <link.h>
#include <mutex>
#include <string>
#include <unistd.h>

namespace cp_pool {
namespace {

std::string own_program() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  return length <= 0 ? "" : std::string(path.data(), static_cast<std::size_t>(length));
}

// Returns the path of the shared library that contains this code, such as the extension of an interpreter. Empty if
// this code is part of the program itself.
std::string own_library() {
  Dl_info unused{};
  link_map* object = nullptr;
  const bool found = dladdr1(reinterpret_cast<const void*>(&own_library), &unused, reinterpret_cast<void**>(&object),
                             RTLD_DL_LINKMAP) != 0;
  return found && object != nullptr ? object->l_name : "";  // for the program itself, the loader's name is empty
}

// Returns the path of the module. It is looked for in three folders, relative to the program or library that contains
// this code: beside it, as in a build folder; in ../lib/cp-pool, as in an installation; in lib/cp-pool, as in a Python
// package. If it is in none of them, returns its name, which the loader then looks up in the library path.
std::string module_path(const std::string& name) {
  const std::string library = own_library();
  const std::string object = library.empty() ? own_program() : library;
  if (object.empty()) return name;
  const std::string folder = object.substr(0, object.rfind('/') + 1);
  for (const char* place : {"", "../lib/cp-pool/", "lib/cp-pool/"}) {
    std::string file = folder;
    file.append(place).append(name);
    if (access(file.c_str(), R_OK) == 0) return file;
  }
  return name;
}

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
