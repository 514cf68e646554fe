#include "driver/cli/device.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

namespace cp_pool {

namespace {

bool is_gpu(const std::string& name) {
  constexpr std::string_view kPrefix = "nvidia";
  if (!name.starts_with(kPrefix) || name.size() == kPrefix.size()) return false;
  return std::all_of(name.begin() + kPrefix.size(), name.end(),
                     [](unsigned char letter) { return std::isdigit(letter) != 0; });
}

}  // namespace

int count_gpus(const std::filesystem::path& dev, const char* visible) {
  int count = 0;
  std::error_code none;  // an unreadable folder has no GPU
  for (const auto& entry : std::filesystem::directory_iterator{dev, none}) {
    if (is_gpu(entry.path().filename().string())) ++count;
  }
  if (visible == nullptr) return count;
  const std::string_view list{visible};
  const auto named = list.empty() ? 0 : static_cast<int>(std::ranges::count(list, ',')) + 1;
  return std::min(count, named);
}

std::string resolve_device(const std::string& requested) {
  if (requested != "auto") return requested;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  const bool built = std::filesystem::exists(program.parent_path() / "libcp_core_cuda.so");
  return built && count_gpus("/dev", std::getenv("CUDA_VISIBLE_DEVICES")) > 0 ? "cuda" : "cpu";
}

}  // namespace cp_pool
