// Which slots are free.
#pragma once

#include <optional>
#include <vector>

namespace cp_pool {

class SlotTable {
 public:
  // nullopt: slots are not counted; there is always room, and nobody gets a number.
  explicit SlotTable(std::optional<int> slots);

  [[nodiscard]] bool limited() const { return limited_; }
  // How many slots a pool of so many ranks holds: all, if there are fewer.
  [[nodiscard]] int held_by(int ranks) const;
  [[nodiscard]] int free() const { return free_; }

  // The numbers of `wanted` slots, which must be free. Neighbours, where there are so many: the shortest row of free
  // slots that is long enough; else the first free ones.
  std::vector<int> take(int wanted);
  // Empties the list.
  void give_back(std::vector<int>& slots);

 private:
  std::vector<bool> is_free_;  // by slot
  bool limited_;
  int free_;
};

}  // namespace cp_pool
