#include "driver/os/gpu_links.h"

#include <algorithm>
#include <cstddef>
#include <dlfcn.h>
#include <memory>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/parse_number.h"
#include "driver/core/mapped.h"

namespace cp_pool {

namespace {

// The parts of the library that are used, after NVIDIA's NVML API reference. They are declared here so that the toolkit
// need not be installed.
using Device = void*;
constexpr int kSuccess = 0;
constexpr int kByNvlink = 2;  // NVML_P2P_CAPS_INDEX_NVLINK
constexpr int kP2pOk = 0;     // NVML_P2P_STATUS_OK
// Step between values of nvmlGpuTopologyLevel_t: 10 one switch, 20 several, 30 a host bridge, ..
constexpr int kLevelsPerAncestor = 10;

class Library {
 public:
  // Like all functions it throws std::runtime_error.
  explicit Library(const char* file) : handle_(::dlopen(file, RTLD_NOW | RTLD_LOCAL), [](void* h) { ::dlclose(h); }) {
    if (!handle_) throw std::runtime_error(fmt::format("{} cannot be loaded", file));
    call("nvmlInit_v2");
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    try {
      call("nvmlShutdown");
    } catch (const std::runtime_error&) {  // harmless, since all questions have been answered
    }
  }

  [[nodiscard]] Device device(const std::string& name) const {
    Device out = nullptr;
    if (const auto number = parse_number<unsigned>(name)) {
      call("nvmlDeviceGetHandleByIndex_v2", *number, &out);
    } else {
      call("nvmlDeviceGetHandleByUUID", name.c_str(), &out);
    }
    return out;
  }

  [[nodiscard]] int distance(Device one, Device other) const {
    int status = 0;
    call("nvmlDeviceGetP2PStatus", one, other, kByNvlink, &status);
    if (status == kP2pOk) return 0;
    int level = 0;
    call("nvmlDeviceGetTopologyCommonAncestor", one, other, &level);
    return std::max(level / kLevelsPerAncestor, kNearestByPcie);
  }

 private:
  template <typename... Arguments>
  void call(const char* name, Arguments... arguments) const {
    using Function = int (*)(Arguments...);
    const auto function = reinterpret_cast<Function>(::dlsym(handle_.get(), name));
    if (function == nullptr) throw std::runtime_error(fmt::format("the GPU driver has no {}", name));
    if (const int status = function(arguments...); status != kSuccess) {
      throw std::runtime_error(fmt::format("{} has failed with status {}", name, status));
    }
  }

  std::unique_ptr<void, void (*)(void*)> handle_;
};

// Writes numbers in order, with runs of consecutive ones as "0-3".
std::string range_text(const std::vector<int>& numbers) {
  std::vector<std::string> parts;
  for (const auto& [begin, end] : stretches(numbers, [](int one, int next) { return next == one + 1; })) {
    parts.push_back(end - begin == 1 ? fmt::format("{}", numbers[begin])
                                     : fmt::format("{}-{}", numbers[begin], numbers[end - 1]));
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

}  // namespace

GpuLinks gpu_links(const std::vector<std::string>& names, const char* library) {
  GpuLinks out;
  try {
    const Library nvml(library);
    const auto devices = mapped(names, [&](const std::string& name) { return nvml.device(name); });
    std::vector<std::vector<int>> distances(names.size(), std::vector<int>(names.size(), 0));
    for (std::size_t i = 0; i < names.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        distances[i][j] = distances[j][i] = nvml.distance(devices[i], devices[j]);
      }
    }
    out.distances = std::move(distances);
  } catch (const std::runtime_error& error) {
    out.why_unknown = error.what();
  }
  return out;
}

std::string nvlink_text(const GpuLinks& links) {
  const std::size_t count = links.distances.size();
  if (count == 0) return fmt::format("whether NVLink joins them is not known: {}", links.why_unknown);
  std::vector<std::string> groups;
  std::vector<bool> seen(count, false);
  for (std::size_t first = 0; first < count; ++first) {
    if (seen[first]) continue;
    std::vector<int> group;
    for (std::size_t other = first; other < count; ++other) {
      if (links.distances[first][other] != 0 || seen[other]) continue;
      group.push_back(static_cast<int>(other));
      seen[other] = true;
    }
    if (group.size() == count) return "NVLink joins all";
    if (group.size() > 1) groups.push_back(range_text(group));
  }
  return groups.empty() ? "no NVLink" : fmt::format("NVLink joins {}", fmt::join(groups, " and "));
}

}  // namespace cp_pool
