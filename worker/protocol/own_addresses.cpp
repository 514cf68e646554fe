#include "worker/protocol/own_addresses.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <tuple>
#include <unistd.h>

namespace cp_pool::protocol {

namespace {

struct Found {
  bool loopback;
  bool six;
  std::string text;
};

std::string text_of(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* const bytes = address.sa_family == AF_INET
                                ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr)
                                : &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return inet_ntop(address.sa_family, bytes, text.data(), text.size()) == nullptr ? "" : text.data();
}

bool is_link_local(const sockaddr& address) {
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

}  // namespace

std::vector<std::string> own_addresses(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  std::vector<Found> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    if (!interface.empty() && interface != entry->ifa_name) continue;
    const sockaddr& address = *entry->ifa_addr;
    if ((address.sa_family != AF_INET && address.sa_family != AF_INET6) || is_link_local(address)) continue;
    found.push_back({(entry->ifa_flags & IFF_LOOPBACK) != 0, address.sa_family == AF_INET6, text_of(address)});
  }
  freeifaddrs(list);
  std::ranges::stable_sort(found, {}, [](const Found& f) { return std::tuple{f.loopback, f.six}; });
  std::vector<std::string> out;
  for (Found& f : found) {
    if (!f.text.empty()) out.push_back(std::move(f.text));
  }
  return out;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "";
  return name.data();
}

}  // namespace cp_pool::protocol
