#include "driver/cli/device.h"

#include <fmt/format.h>

#include "driver/cli/option_kinds.h"
#include "driver/cli/program_paths.h"
#include "driver/core/exit_code.h"
#include "worker/protocol/host_resources.h"

namespace cp_pool {
namespace {

constexpr int kMostGpus = 1024;  // no machine has more

std::optional<int> gpu_number(std::string_view text) {
  const auto number = parse_number<int>(text);
  return number && *number >= 0 && *number < kMostGpus ? number : std::nullopt;
}

}  // namespace

int count_gpus(const std::filesystem::path& dev, const char* visible) {
  return static_cast<int>(visible_gpu_names(dev, visible).size());
}

DeviceChoice choose_device(const std::string& requested, bool shipped, int gpus, bool built) {
  if (requested != "auto") return {.device = requested};
  if (gpus == 0 || !shipped || built) return {.device = gpus > 0 ? "cuda" : "cpu"};
  return {.device = "cpu",
          .warning = fmt::format("ranks run on the CPU: this machine has {}, but the worker was built without its CUDA "
                                 "part (with nvcc of CUDA 13 installed: {})",
                                 gpus == 1 ? "a GPU" : fmt::format("{} GPUs", gpus), kBuildForGpus)};
}

int ranks_to_try(const std::string& device, int gpus) {
  constexpr int kRanks = 2;
  return device == "cuda" ? std::clamp(gpus, 1, kRanks) : kRanks;
}

int gpus_to_share(const RunConfig& config, int most_ranks, int gpus) {
  if (!config.gpus.empty()) gpus = static_cast<int>(config.gpus.size());
  return config.device == "cuda" && config.share_gpus && gpus < most_ranks ? gpus : 0;
}

bool built_for_gpus() {
  const std::filesystem::path bin = program_path().parent_path();
  return std::filesystem::exists(bin / "libcp_core_cuda.so") ||
         std::filesystem::exists(bin.parent_path() / "lib/cp-pool/libcp_core_cuda.so");
}

std::optional<std::vector<int>> parse_gpu_list(std::string_view text) {
  std::vector<int> out;
  for (const std::string& entry : split(text, ',')) {
    const std::size_t dash = entry.find('-');
    const auto first = gpu_number(entry.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : gpu_number(entry.substr(dash + 1));
    if (!first || !last || *last < *first) return std::nullopt;
    for (int gpu = *first; gpu <= *last; ++gpu) {
      if (std::ranges::count(out, gpu) > 0) return std::nullopt;
      out.push_back(gpu);
    }
  }
  return out;
}

std::vector<std::string> visible_gpu_names(const std::filesystem::path& dev, const char* visible) {
  const auto count = static_cast<std::size_t>(protocol::count_gpu_files(dev));
  std::vector<std::string> out;
  if (visible != nullptr) out = protocol::visible_gpus(visible);
  for (std::size_t gpu = 0; visible == nullptr && gpu < count; ++gpu) out.push_back(std::to_string(gpu));
  out.resize(std::min(out.size(), count));
  return out;
}

std::vector<std::string> chosen_gpus(const std::vector<int>& list, const std::vector<std::string>& shown) {
  if (list.empty()) return shown;
  std::vector<std::string> out;
  for (const int gpu : list) {
    if (!shown.empty() && gpu >= static_cast<int>(shown.size())) {
      throw CommandError(ExitCode::usage, "--gpus: there is no GPU {}; {} visible, numbered from 0", gpu,
                         shown.size() == 1 ? "1 is" : fmt::format("{} are", shown.size()));
    }
    out.push_back(shown.empty() ? std::to_string(gpu) : shown[static_cast<std::size_t>(gpu)]);
  }
  return out;
}

}  // namespace cp_pool
