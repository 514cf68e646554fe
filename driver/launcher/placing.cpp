#include "driver/launcher/placing.h"

#include <algorithm>
#include <cstddef>

namespace cp_pool {

std::vector<int> slots_of(const std::vector<HostShare>& hosts) {
  std::vector<int> out;
  for (const HostShare& host : hosts) out.push_back(host.ranks);
  return out;
}

std::vector<HostShare> place(int ranks, const std::vector<int>& slots, const std::vector<HostShare>& hosts) {
  std::vector<HostShare> shares;
  int begin = 0;
  for (const HostShare& host : hosts) {
    const int end = begin + host.ranks;
    const auto held = std::ranges::count_if(slots, [&](int slot) { return slot >= begin && slot < end; });
    shares.push_back({host.host, slots.empty() ? host.ranks : static_cast<int>(held)});
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
