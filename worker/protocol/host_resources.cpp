#include "worker/protocol/host_resources.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <fstream>
#include <ifaddrs.h>
#include <map>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <ranges>
#include <sched.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace cp_pool::protocol {

namespace {

bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

bool is_gpu(std::string_view name) {
  constexpr std::string_view kPrefix = "nvidia";
  return name.starts_with(kPrefix) && is_number(name.substr(kPrefix.size()));
}

// Reads cpu.max: "QUOTA PERIOD" in microseconds, or "max PERIOD" without a quota.
std::optional<double> quota_of(const std::filesystem::path& group) {
  std::ifstream in(group / "cpu.max");
  double quota = 0;
  double period = 0;
  if (!(in >> quota >> period) || period <= 0) return std::nullopt;
  return quota / period;
}

int cores_of_affinity() {
  std::vector<cpu_set_t> allowed(64);  // as many CPUs as a kernel may number: the call fails if the set is smaller
  const std::size_t bytes = allowed.size() * sizeof(cpu_set_t);
  return sched_getaffinity(0, bytes, allowed.data()) == 0 ? CPU_COUNT_S(bytes, allowed.data()) : 1;
}

std::string text_of(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const socklen_t size = address.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  const int error = ::getnameinfo(&address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? text.data() : "";
}

bool is_link_local(const sockaddr& address) {
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
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

std::optional<double> core_quota(std::istream& own, const std::filesystem::path& root) {
  constexpr std::string_view kVersion2 = "0::/";
  std::string line;
  while (std::getline(own, line) && !line.starts_with(kVersion2)) {
  }
  if (!line.starts_with(kVersion2)) return std::nullopt;
  std::optional<double> smallest = quota_of(root);  // in a container this is the container's own group
  std::filesystem::path group = root;
  for (const auto& name : std::filesystem::path(line.substr(kVersion2.size()))) {
    group /= name;
    if (const std::optional<double> quota = quota_of(group)) smallest = std::min(*quota, smallest.value_or(*quota));
  }
  return smallest;
}

int usable_cores() {
  const int cores = cores_of_affinity();
  std::ifstream own("/proc/self/cgroup");
  const double quota = core_quota(own, "/sys/fs/cgroup").value_or(cores);
  return std::max(1, std::min(cores, static_cast<int>(std::ceil(quota))));
}

std::vector<std::string> own_addresses(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  std::multimap<std::pair<bool, bool>, std::string> found;  // those of the loopback interface and IPv6 come later
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    if (!interface.empty() && interface != entry->ifa_name) continue;
    const sockaddr& address = *entry->ifa_addr;
    if ((address.sa_family != AF_INET && address.sa_family != AF_INET6) || is_link_local(address)) continue;
    std::string text = text_of(address);
    if (text.empty()) continue;
    found.emplace(std::pair{(entry->ifa_flags & IFF_LOOPBACK) != 0, address.sa_family == AF_INET6}, std::move(text));
  }
  freeifaddrs(list);
  const auto texts = std::views::values(found);
  return {texts.begin(), texts.end()};
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "";
  return name.data();
}

}  // namespace cp_pool::protocol
