#include "driver/cli/device.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "worker/protocol/gpu_files.h"

namespace cp_pool {

int count_gpus(const std::filesystem::path& dev, const char* visible) {
  const int count = protocol::count_gpu_files(dev);
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
