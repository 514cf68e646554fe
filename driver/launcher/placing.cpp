#include "driver/launcher/placing.h"

#include <algorithm>
#include <cstddef>

namespace cp_pool {

std::vector<int> slots_of(const std::vector<HostShare>& hosts) {
  std::vector<int> out;
  out.reserve(hosts.size());
  for (const HostShare& host : hosts) out.push_back(host.ranks);
  return out;
}

std::vector<HostShare> place(int ranks, const std::vector<int>& slots, const std::vector<HostShare>& hosts) {
  std::vector<HostShare> shares;
  shares.reserve(hosts.size());
  int begin = 0;
  for (const HostShare& host : hosts) {
    const int end = begin + host.ranks;
    HostShare& share = shares.emplace_back(HostShare{.host = host.host, .ranks = host.ranks});
    for (const int slot : slots) {
      if (slot >= begin && slot < end) share.slots.push_back(slot - begin);
    }
    if (!slots.empty()) share.ranks = static_cast<int>(share.slots.size());
    begin = end;
  }
  int left = ranks;
  for (HostShare& share : shares) {
    share.ranks = std::min(share.ranks, left);
    left -= share.ranks;
  }
  std::erase_if(shares, [](const HostShare& share) { return share.ranks == 0; });
  for (std::size_t i = 0; left > 0 && !shares.empty(); i = (i + 1) % shares.size(), --left) ++shares[i].ranks;
  return shares;
}

}  // namespace cp_pool
