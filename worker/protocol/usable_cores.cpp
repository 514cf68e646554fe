#include "worker/protocol/usable_cores.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sched.h>
#include <string>
#include <string_view>

namespace cp_pool::protocol {

namespace {

// "QUOTA PERIOD" in microseconds, or "max PERIOD".
std::optional<double> quota_of(const std::filesystem::path& group) {
  std::ifstream in(group / "cpu.max");
  double quota = 0;
  double period = 0;
  if (!(in >> quota >> period) || period <= 0) return std::nullopt;
  return quota / period;
}

}  // namespace

std::optional<double> core_quota(std::istream& own, const std::filesystem::path& root) {
  constexpr std::string_view kVersion2 = "0::/";
  std::string line;
  while (std::getline(own, line) && !line.starts_with(kVersion2)) {
  }
  if (!line.starts_with(kVersion2)) return std::nullopt;
  std::optional<double> smallest = quota_of(root);  // a container sees its own group there
  std::filesystem::path group = root;
  for (const auto& name : std::filesystem::path(line.substr(kVersion2.size()))) {
    group /= name;
    if (const std::optional<double> quota = quota_of(group)) smallest = std::min(*quota, smallest.value_or(*quota));
  }
  return smallest;
}

int usable_cores() {
  cpu_set_t allowed;
  const int cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  std::ifstream own("/proc/self/cgroup");
  const double quota = core_quota(own, "/sys/fs/cgroup").value_or(cores);
  return std::max(1, std::min(cores, static_cast<int>(std::ceil(quota))));
}

}  // namespace cp_pool::protocol
