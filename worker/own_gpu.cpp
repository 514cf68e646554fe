#include "worker/own_gpu.h"

#include <cstdlib>

#include <fmt/format.h>

#include "worker/protocol/host_resources.h"

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

// Returns the visible GPUs by their names in CUDA_VISIBLE_DEVICES; empty if they cannot be found without CUDA.
std::vector<std::string> names_of_gpus() {
  if (const auto visible = protocol::process_variable(kVisible)) return protocol::visible_gpus(*visible);
  std::vector<std::string> names;
  for (int gpu = 0; gpu < protocol::count_gpu_files(); ++gpu) names.push_back(std::to_string(gpu));
  return names;
}

std::string share_obstacle(const protocol::RankEnvironment& environment, const std::string& peers_forbidden) {
  if (!environment.share_gpus) return "ranks may not share a GPU (--share-gpus)";
  if (environment.local_world_size != environment.world_size) {
    return "ranks that share a GPU must all be on one host";
  }
  if (!peers_forbidden.empty()) {
    return fmt::format("ranks that share a GPU exchange data only by peer copies: {}", peers_forbidden);
  }
  return {};
}

}  // namespace

int gpu_of_rank(int local_rank, int local_world_size, int gpus) {
  return gpus >= local_world_size ? local_rank : local_rank * gpus / local_world_size;
}

OwnGpu choose_own_gpu(const protocol::RankEnvironment& environment, int gpus, const std::string& peers_forbidden) {
  OwnGpu own;
  own.index = environment.local_rank;
  const int ranks = environment.local_world_size;
  if (gpus == 0 || gpus >= ranks) return own;
  own.share_obstacle = share_obstacle(environment, peers_forbidden);
  if (!own.share_obstacle.empty()) return own;
  own.index = gpu_of_rank(environment.local_rank, ranks, gpus);
  own.shared_gpus = gpus;
  own.ranks_on_it = 0;
  for (int rank = 0; rank < ranks; ++rank) own.ranks_on_it += gpu_of_rank(rank, ranks, gpus) == own.index ? 1 : 0;
  return own;
}

OwnGpu choose_own_gpu(const protocol::RankEnvironment& environment, const std::string& peers_forbidden) {
  if (environment.device != "cuda") {
    OwnGpu none;
    none.index = environment.local_rank;
    return none;
  }
  const bool hides = hiding_is_on();
  const std::vector<std::string> names = names_of_gpus();
  OwnGpu own = choose_own_gpu(environment, static_cast<int>(names.size()), peers_forbidden);
  if (!hides || static_cast<std::size_t>(own.index) >= names.size() || !own.share_obstacle.empty()) return own;
  constexpr int kReplace = 1;
  setenv(kVisible, names[static_cast<std::size_t>(own.index)].c_str(), kReplace);
  own.index = 0;
  own.is_only = true;
  return own;
}

}  // namespace cp_pool
