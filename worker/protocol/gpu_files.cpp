#include "worker/protocol/gpu_files.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <system_error>

namespace cp_pool::protocol {

namespace {

bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

bool is_gpu(std::string_view name) {
  constexpr std::string_view kPrefix = "nvidia";
  return name.starts_with(kPrefix) && is_number(name.substr(kPrefix.size()));
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

std::vector<std::string> visible_gpus(std::string_view list) {
  std::vector<std::string> entries;
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(','));
    if (!is_number(entry) && !entry.starts_with("GPU-") && !entry.starts_with("MIG-")) break;
    entries.emplace_back(entry);
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
  }
  return entries;
}

}  // namespace cp_pool::protocol
