#include "cp_core/cuda/module_path.h"

#include <array>
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

namespace cp_pool {

namespace {

std::string own_program() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  return length <= 0 ? "" : std::string(path.data(), static_cast<std::size_t>(length));
}

}  // namespace

std::string own_library() {
  Dl_info unused{};
  link_map* object = nullptr;
  const bool found = dladdr1(reinterpret_cast<const void*>(&own_library), &unused, reinterpret_cast<void**>(&object),
                             RTLD_DL_LINKMAP) != 0;
  return found && object != nullptr ? object->l_name : "";  // for the program itself, the loader's name is empty
}

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

}  // namespace cp_pool
