// Which slots are free.
#pragma once

#include <optional>
#include <vector>

namespace cp_pool {

// How far two slots are from each other, by their numbers: 0 is next to each other, and the larger the farther. Empty:
// unknown.
using SlotDistances = std::vector<std::vector<int>>;

class SlotTable {
 public:
  // nullopt: slots are not counted; there is always room, and nobody gets a number. distances: of all slots, or empty.
  explicit SlotTable(std::optional<int> slots, SlotDistances distances = {});

  [[nodiscard]] bool limited() const { return limited_; }
  // How many slots a pool of so many ranks holds: all, if there are fewer.
  [[nodiscard]] int held_by(int ranks) const;
  [[nodiscard]] int free() const { return free_; }

  // The numbers of `wanted` slots, which must be free, in order. Where distances are known and differ, those that are
  // nearest to each other; of equal ones, those that leave fewest near ones behind. Else neighbours by number, where
  // there are so many: the shortest row of free slots that is long enough; else the first free ones.
  std::vector<int> take(int wanted);
  // Empties the list.
  void give_back(std::vector<int>& slots);

 private:
  [[nodiscard]] std::vector<int> in_a_row(int wanted) const;
  [[nodiscard]] std::vector<int> nearest(int wanted) const;
  [[nodiscard]] std::vector<int> grown_from(int first, int wanted) const;
  [[nodiscard]] bool is_free(int slot) const { return is_free_[static_cast<std::size_t>(slot)]; }
  [[nodiscard]] int distance(int one, int other) const;
  [[nodiscard]] int size() const { return static_cast<int>(is_free_.size()); }

  std::vector<bool> is_free_;  // by slot
  SlotDistances distances_;    // empty: unknown, or all are equal
  bool limited_;
  int free_;
};

}  // namespace cp_pool
