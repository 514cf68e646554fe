#include "worker/own_gpu.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "worker/protocol/gpu_files.h"

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

bool hiding_is_on() {
  const std::string value = protocol::process_variable(kHide).value_or("on");
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
  const auto name = name_of_own_gpu(protocol::process_variable(kVisible), protocol::count_gpu_files(),
                                    environment.local_rank, environment.local_world_size);
  if (!name) return among_all;
  constexpr int kReplace = 1;
  setenv(kVisible, name->c_str(), kReplace);
  return {.index = 0, .is_only = true};
}

}  // namespace cp_pool
