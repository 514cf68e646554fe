// Which slots are free.
#pragma once

#include <optional>
#include <utility>
#include <vector>

namespace cp_pool {

// How far two slots are from each other, by their numbers: 0 is next to each other, and the larger the farther. Empty:
// unknown.
using SlotDistances = std::vector<std::vector<int>>;

class SlotTable {
 public:
  // slots: nullopt: they are not counted; there is always room, and nobody gets a number. distances: of all slots, or
  // empty. of_hosts: how many each host has, in order; empty: all are on one.
  explicit SlotTable(std::optional<int> slots, SlotDistances distances = {}, const std::vector<int>& of_hosts = {});

  [[nodiscard]] bool limited() const { return limited_; }
  // How many slots a pool of so many ranks holds: all, if there are fewer.
  [[nodiscard]] int held_by(int ranks) const;
  [[nodiscard]] int free() const { return free_; }

  // The numbers of `wanted` slots, which must be free, in order. Where distances are known and differ, those that are
  // nearest to each other; of equal ones, those that leave fewest near ones behind. Else slots of one host, if one has
  // so many free: neighbours by number, where there are so many (the shortest row of free slots that is long enough),
  // else the host's first free ones. Over several hosts those with most free slots, so that they are few.
  std::vector<int> take(int wanted);
  // Empties the list.
  void give_back(std::vector<int>& slots);

 private:
  struct Host {
    int begin = 0;  // its slots
    int end = 0;
  };
  [[nodiscard]] std::vector<int> by_host(int wanted) const;
  [[nodiscard]] int free_of(const Host& host) const;
  // Where the shortest row of free slots begins that is long enough, and how long it is; nullopt: there is none.
  [[nodiscard]] std::optional<std::pair<int, int>> shortest_row(const Host& host, int wanted) const;
  void add_first(const Host& host, int wanted, std::vector<int>& out) const;
  [[nodiscard]] std::vector<int> nearest(int wanted) const;
  [[nodiscard]] std::vector<int> grown_from(int first, int wanted) const;
  [[nodiscard]] bool is_free(int slot) const { return is_free_[static_cast<std::size_t>(slot)]; }
  [[nodiscard]] int distance(int one, int other) const;
  [[nodiscard]] int size() const { return static_cast<int>(is_free_.size()); }

  std::vector<bool> is_free_;  // by slot
  SlotDistances distances_;    // empty: unknown, or all are equal
  std::vector<Host> hosts_;    // empty: slots are not counted
  bool limited_;
  int free_;
};

}  // namespace cp_pool
