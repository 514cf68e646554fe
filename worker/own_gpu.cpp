#include "worker/own_gpu.h"

#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include "worker/protocol/gpu_files.h"

namespace cp_pool {

namespace {

constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";
constexpr const char* kHide = "CP_POOL_HIDE_GPUS";

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
  const std::vector<std::string> entries = protocol::visible_gpus(*visible);
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
