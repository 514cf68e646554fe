#include "cp_core/cuda/module_path.h"

#include <array>
#include <unistd.h>

namespace cp_pool {

std::string module_path(const std::string& name) {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) return name;
  const std::string program(path.data(), static_cast<std::size_t>(length));
  const std::string folder = program.substr(0, program.rfind('/') + 1);
  for (const char* place : {"", "../lib/cp-pool/"}) {
    std::string file = folder;
    file.append(place).append(name);
    if (access(file.c_str(), R_OK) == 0) return file;
  }
  return name;
}

}  // namespace cp_pool
