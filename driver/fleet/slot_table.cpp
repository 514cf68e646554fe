#include "driver/fleet/slot_table.h"

#include <algorithm>
#include <limits>

namespace cp_pool {

SlotTable::SlotTable(std::optional<int> slots)
    : limited_(slots.has_value()), free_(slots ? std::max(*slots, 1) : std::numeric_limits<int>::max()) {
  if (slots) is_free_.assign(static_cast<std::size_t>(free_), true);
}

int SlotTable::held_by(int ranks) const {
  return limited_ ? std::min(ranks, static_cast<int>(is_free_.size())) : ranks;
}

std::vector<int> SlotTable::take(int wanted) {
  std::vector<int> out;
  if (!limited_) return out;
  const int all = static_cast<int>(is_free_.size());
  const auto is_free = [&](int slot) { return slot < all && is_free_[static_cast<std::size_t>(slot)]; };
  int best_begin = -1;
  int best_length = all + 1;
  for (int begin = 0; begin < all;) {
    int end = begin;
    while (is_free(end)) ++end;
    if (end - begin >= wanted && end - begin < best_length) {
      best_begin = begin;
      best_length = end - begin;
    }
    begin = end + 1;
  }
  for (int slot = std::max(best_begin, 0); static_cast<int>(out.size()) < wanted; ++slot) {
    if (!is_free(slot)) continue;
    is_free_[static_cast<std::size_t>(slot)] = false;
    out.push_back(slot);
  }
  free_ -= wanted;
  return out;
}

void SlotTable::give_back(std::vector<int>& slots) {
  for (const int slot : slots) is_free_[static_cast<std::size_t>(slot)] = true;
  free_ += static_cast<int>(slots.size());
  slots.clear();
}

}  // namespace cp_pool
