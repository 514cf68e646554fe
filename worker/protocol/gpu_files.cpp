#include "worker/protocol/gpu_files.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <system_error>

namespace cp_pool::protocol {

namespace {

bool is_gpu(const std::string& name) {
  constexpr std::string_view kPrefix = "nvidia";
  if (!name.starts_with(kPrefix) || name.size() == kPrefix.size()) return false;
  return std::all_of(name.begin() + kPrefix.size(), name.end(),
                     [](unsigned char letter) { return std::isdigit(letter) != 0; });
}

}  // namespace

int count_gpu_files(const std::filesystem::path& dev) {
  int count = 0;
  std::error_code none;  // an unreadable folder has no GPU
  for (const auto& entry : std::filesystem::directory_iterator{dev, none}) {
    if (is_gpu(entry.path().filename().string())) ++count;
  }
  return count;
}

}  // namespace cp_pool::protocol
