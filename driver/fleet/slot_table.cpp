#include "driver/fleet/slot_table.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

namespace cp_pool {

namespace {

// Then they tell nothing.
bool all_equal(const SlotDistances& distances) {
  for (std::size_t i = 0; i < distances.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (distances[i][j] != distances[1][0]) return false;
    }
  }
  return true;
}

}  // namespace

SlotTable::SlotTable(std::optional<int> slots, SlotDistances distances)
    : limited_(slots.has_value()), free_(slots ? std::max(*slots, 1) : std::numeric_limits<int>::max()) {
  if (slots) is_free_.assign(static_cast<std::size_t>(free_), true);
  if (distances.size() == is_free_.size() && !all_equal(distances)) distances_ = std::move(distances);
}

int SlotTable::held_by(int ranks) const {
  return limited_ ? std::min(ranks, size()) : ranks;
}

std::vector<int> SlotTable::take(int wanted) {
  if (!limited_) return {};
  std::vector<int> out = distances_.empty() ? in_a_row(wanted) : nearest(wanted);
  for (const int slot : out) is_free_[static_cast<std::size_t>(slot)] = false;
  free_ -= wanted;
  return out;
}

void SlotTable::give_back(std::vector<int>& slots) {
  for (const int slot : slots) is_free_[static_cast<std::size_t>(slot)] = true;
  free_ += static_cast<int>(slots.size());
  slots.clear();
}

std::vector<int> SlotTable::in_a_row(int wanted) const {
  int best_begin = 0;
  int best_length = size() + 1;
  for (int begin = 0; begin < size();) {
    int end = begin;
    while (end < size() && is_free(end)) ++end;
    if (end - begin >= wanted && end - begin < best_length) {
      best_begin = begin;
      best_length = end - begin;
    }
    begin = end + 1;
  }
  std::vector<int> out;
  for (int slot = best_begin; static_cast<int>(out.size()) < wanted; ++slot) {
    if (is_free(slot)) out.push_back(slot);
  }
  return out;
}

// Of the sets that grow from each free slot, that with the smallest sum of distances.
std::vector<int> SlotTable::nearest(int wanted) const {
  std::vector<int> best;
  std::pair<int, int> best_rank;  // distances among its slots; distances to those that stay, the other way round
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

// Each slot that comes is the nearest to those that are there.
std::vector<int> SlotTable::grown_from(int first, int wanted) const {
  std::vector<int> out{first};
  while (static_cast<int>(out.size()) < wanted) {
    std::optional<std::pair<int, int>> next;  // the sum of its distances, its number
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

int SlotTable::distance(int one, int other) const {
  return distances_[static_cast<std::size_t>(one)][static_cast<std::size_t>(other)];
}

}  // namespace cp_pool
