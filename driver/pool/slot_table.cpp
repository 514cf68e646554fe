#include "driver/pool/slot_table.h"

#include <cstddef>
#include <limits>
#include <set>

namespace cp_pool {

SlotTable::SlotTable(std::optional<int> slots, SlotDistances distances, const std::vector<int>& of_hosts)
    : limited_(slots.has_value()), free_(slots ? std::max(*slots, 1) : std::numeric_limits<int>::max()) {
  if (!slots) return;
  is_free_.assign(static_cast<std::size_t>(free_), true);
  // Distances that are all equal give no reason to prefer one slot.
  std::set<int> different;
  for (std::size_t i = 0; i < distances.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) different.insert(distances[i][j]);
  }
  if (distances.size() == is_free_.size() && different.size() > 1) distances_ = std::move(distances);
  int begin = 0;
  for (const int count : of_hosts) {
    const int end = std::min(begin + count, free_);
    hosts_.push_back({begin, end});
    begin = end;
  }
  if (begin < free_) hosts_.push_back({begin, free_});
}

std::vector<int> SlotTable::take(int wanted) {
  if (!limited_) return {};
  std::vector<int> out = distances_.empty() ? by_host(wanted) : nearest(wanted);
  for (const int slot : out) is_free_[static_cast<std::size_t>(slot)] = false;
  free_ -= wanted;
  return out;
}

std::vector<int> SlotTable::choose(const std::vector<int>& among, int wanted) const {
  SlotTable table = *this;
  table.is_free_.assign(is_free_.size(), false);
  for (const int slot : among) table.is_free_[static_cast<std::size_t>(slot)] = true;
  return table.take(wanted);
}

bool SlotTable::take_if_free(int slot) {
  if (!is_free(slot)) return false;
  is_free_[static_cast<std::size_t>(slot)] = false;
  --free_;
  return true;
}

void SlotTable::give_back(std::vector<int>& slots) {
  for (const int slot : slots) is_free_[static_cast<std::size_t>(slot)] = true;
  free_ += static_cast<int>(slots.size());
  slots.clear();
}

std::vector<int> SlotTable::by_host(int wanted) const {
  const Host* best = nullptr;
  std::optional<std::pair<int, int>> row;
  for (const Host& host : hosts_) {
    const auto found = shortest_row(host, wanted);
    if (!found || (row && row->second <= found->second)) continue;
    best = &host;
    row = found;
  }
  std::vector<int> out;
  if (best != nullptr) {
    add_first({row->first, best->end}, wanted, out);
    return out;
  }
  std::vector<Host> by_room = hosts_;
  std::ranges::stable_sort(by_room, std::ranges::greater{}, [this](const Host& host) { return free_of(host); });
  // If hosts have enough room, only one is used: that on which fewest slots stay free.
  const auto enough =
      std::ranges::find_if(by_room.rbegin(), by_room.rend(), [&](const Host& host) { return free_of(host) >= wanted; });
  if (enough != by_room.rend()) std::swap(*enough, by_room.front());
  for (const Host& host : by_room) {
    const int left = wanted - static_cast<int>(out.size());
    if (left > 0) add_first(host, left, out);
  }
  std::ranges::sort(out);
  return out;
}

std::optional<std::pair<int, int>> SlotTable::shortest_row(const Host& host, int wanted) const {
  std::optional<std::pair<int, int>> best;
  for (int begin = host.begin; begin < host.end;) {
    int end = begin;
    while (end < host.end && is_free(end)) ++end;
    if (end - begin >= wanted && (!best || end - begin < best->second)) best = {begin, end - begin};
    begin = end + 1;
  }
  return best;
}

void SlotTable::add_first(const Host& host, int wanted, std::vector<int>& out) const {
  for (int slot = host.begin; slot < host.end && wanted > 0; ++slot) {
    if (!is_free(slot)) continue;
    out.push_back(slot);
    --wanted;
  }
}

// Grows a set of slots from each free slot and returns the set with the smallest sum of distances within it.
std::vector<int> SlotTable::nearest(int wanted) const {
  std::vector<int> best;
  // Sum of distances within the set, and minus the sum of distances to the free slots outside.
  std::pair<int, int> best_rank;
  for (int first = 0; first < size(); ++first) {
    if (!is_free(first)) continue;
    std::vector<int> set = grown_from(first, wanted);
    std::pair rank{0, 0};
    for (const int slot : set) {
      for (int other = 0; other < size(); ++other) {
        if (!is_free(other)) continue;
        const bool inside = std::ranges::find(set, other) != set.end();
        (inside ? rank.first : rank.second) += inside ? distance(slot, other) : -distance(slot, other);
      }
    }
    if (!best.empty() && rank >= best_rank) continue;
    best = std::move(set);
    best_rank = rank;
  }
  std::ranges::sort(best);
  return best;
}

// Adds to `first` one slot after another, each time the free slot nearest to those already in the set.
std::vector<int> SlotTable::grown_from(int first, int wanted) const {
  std::vector<int> out{first};
  while (static_cast<int>(out.size()) < wanted) {
    std::optional<std::pair<int, int>> next;  // sum of its distances, its number
    for (int slot = 0; slot < size(); ++slot) {
      if (!is_free(slot) || std::ranges::find(out, slot) != out.end()) continue;
      int sum = 0;
      for (const int there : out) sum += distance(slot, there);
      if (!next || std::pair{sum, slot} < *next) next = {sum, slot};
    }
    out.push_back(next->second);
  }
  return out;
}

}  // namespace cp_pool
