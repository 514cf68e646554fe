#include "worker/own_gpu.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include <fmt/format.h>

namespace cp_pool {

namespace {

constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";
constexpr const char* kHide = "CP_POOL_HIDE_GPUS";

bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

// CUDA takes no notice of the first entry that names nothing, and of those behind it.
std::vector<std::string> entries_of(std::string_view list) {
  std::vector<std::string> entries;
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(','));
    if (!is_number(entry) && !entry.starts_with("GPU-") && !entry.starts_with("MIG-")) break;
    entries.emplace_back(entry);
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
  }
  return entries;
}

// /dev/nvidia0, /dev/nvidia1, ..; 0 where drivers show their devices in other ways.
int count_device_files() {
  constexpr std::string_view kPrefix = "nvidia";
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && is_number(std::string_view(name).substr(kPrefix.size()))) ++count;
  }
  return count;
}

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

bool hiding_is_on() {
  const std::string value = variable(kHide).value_or("on");
  if (value == "off") return false;
  if (value.empty() || value == "on") return true;
  throw protocol::EnvironmentError(fmt::format("{}=\"{}\": neither on nor off", kHide, value));
}

}  // namespace

std::optional<std::string> name_of_own_gpu(const std::optional<std::string>& visible, int devices, int local_rank,
                                           int local_world_size) {
  if (!visible) return devices >= local_world_size ? std::optional(std::to_string(local_rank)) : std::nullopt;
  const std::vector<std::string> entries = entries_of(*visible);
  if (entries.size() < static_cast<std::size_t>(local_world_size)) return std::nullopt;
  return entries.at(static_cast<std::size_t>(local_rank));
}

OwnGpu hide_other_gpus(const protocol::RankEnvironment& environment) {
  const OwnGpu among_all{.index = environment.local_rank, .is_only = false};
  if (environment.device != "cuda" || !hiding_is_on()) return among_all;
  const auto name =
      name_of_own_gpu(variable(kVisible), count_device_files(), environment.local_rank, environment.local_world_size);
  if (!name) return among_all;
  constexpr int kReplace = 1;
  setenv(kVisible, name->c_str(), kReplace);
  return {.index = 0, .is_only = true};
}

}  // namespace cp_pool
