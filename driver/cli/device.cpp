#include "driver/cli/device.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "driver/cli/program_paths.h"
#include "worker/protocol/host_resources.h"

namespace cp_pool {

namespace {

int gpus_of_machine() {
  return count_gpus("/dev", std::getenv("CUDA_VISIBLE_DEVICES"));
}

}  // namespace

int count_gpus(const std::filesystem::path& dev, const char* visible) {
  const int count = protocol::count_gpu_files(dev);
  if (visible == nullptr) return count;
  return std::min(count, static_cast<int>(protocol::visible_gpus(visible).size()));
}

DeviceChoice choose_device(const std::string& requested, int gpus, bool built_for_gpus) {
  if (requested != "auto") return {.device = requested, .warning = {}};
  if (gpus == 0 || built_for_gpus) return {.device = gpus > 0 ? "cuda" : "cpu", .warning = {}};
  return {.device = "cpu",
          .warning = fmt::format("ranks run on the CPU: this machine has {}, but the worker was built without its CUDA "
                                 "part (with nvcc of CUDA 13 installed: {})",
                                 gpus == 1 ? "a GPU" : fmt::format("{} GPUs", gpus), kBuildForGpus)};
}

DeviceChoice choose_device(const std::string& requested, bool shipped) {
  return choose_device(requested, gpus_of_machine(), !shipped || built_for_gpus());
}

int ranks_to_try(const std::string& device, int gpus) {
  constexpr int kRanks = 2;
  return device == "cuda" ? std::clamp(gpus, 1, kRanks) : kRanks;
}

int ranks_to_try(const std::string& device) {
  return ranks_to_try(device, gpus_of_machine());
}

int gpus_to_share(const RunConfig& config, int most_ranks, int gpus) {
  return config.device == "cuda" && config.share_gpus && gpus < most_ranks ? gpus : 0;
}

int gpus_to_share(const RunConfig& config, int most_ranks) {
  const int gpus = config.gpus.empty() ? gpus_of_machine() : static_cast<int>(config.gpus.size());
  return gpus_to_share(config, most_ranks, gpus);
}

bool built_for_gpus() {
  const std::filesystem::path bin = program_path().parent_path();
  return std::filesystem::exists(bin / "libcp_core_cuda.so") ||
         std::filesystem::exists(bin.parent_path() / "lib/cp-pool/libcp_core_cuda.so");
}

}  // namespace cp_pool
