// Keeps account of free slots and chooses those of a new pool.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace cp_pool {

// Distance between two slots, indexed by their numbers: 0 for direct neighbours, larger for farther ones. Empty:
// unknown.
using SlotDistances = std::vector<std::vector<int>>;

class SlotTable {
 public:
  // slots: their number; nullopt: slots are not counted, there is always room, and pools get no numbers. distances:
  // between all slots, or empty. of_hosts: number of slots of each host, in order; empty: all are on one host.
  explicit SlotTable(std::optional<int> slots, SlotDistances distances = {}, const std::vector<int>& of_hosts = {});

  [[nodiscard]] bool limited() const { return limited_; }
  // Number of slots that a pool of so many ranks holds: one for each rank, or all if there are fewer.
  [[nodiscard]] int held_by(int ranks) const { return limited_ ? std::min(ranks, size()) : ranks; }
  [[nodiscard]] int free() const { return free_; }
  [[nodiscard]] int size() const { return static_cast<int>(is_free_.size()); }
  [[nodiscard]] bool is_free(int slot) const { return is_free_[static_cast<std::size_t>(slot)]; }

  // Takes `wanted` slots, of which there must be enough free ones, and returns their numbers in order.
  // If distances are known and differ, the slots are nearest to each other; among equal choices, those that are
  // farthest from the slots that stay free.
  // Otherwise the slots are on one host, if one has enough free: slots with consecutive numbers from the shortest such
  // row of free slots, or else the first free slots of the host. If no host has enough, the hosts with most free slots
  // are used, so that there are few of them.
  std::vector<int> take(int wanted);
  // Returns the slots that take() would choose if just these were free.
  [[nodiscard]] std::vector<int> choose(const std::vector<int>& among, int wanted) const;
  // Takes the slot if it is free. Returns whether it was.
  bool take_if_free(int slot);
  // Frees the slots and empties the list.
  void give_back(std::vector<int>& slots);

 private:
  struct Host {
    int begin = 0;  // range of its slot numbers
    int end = 0;
  };
  [[nodiscard]] std::vector<int> by_host(int wanted) const;
  [[nodiscard]] int free_of(const Host& host) const {
    return static_cast<int>(std::count(is_free_.begin() + host.begin, is_free_.begin() + host.end, true));
  }
  // Returns the beginning and length of the shortest row of consecutive free slots that is long enough; nullopt if
  // there is none.
  [[nodiscard]] std::optional<std::pair<int, int>> shortest_row(const Host& host, int wanted) const;
  void add_first(const Host& host, int wanted, std::vector<int>& out) const;
  [[nodiscard]] std::vector<int> nearest(int wanted) const;
  [[nodiscard]] std::vector<int> grown_from(int first, int wanted) const;
  [[nodiscard]] int distance(int one, int other) const {
    return distances_[static_cast<std::size_t>(one)][static_cast<std::size_t>(other)];
  }

  std::vector<bool> is_free_;  // by slot
  SlotDistances distances_;    // empty: unknown, or all are equal
  std::vector<Host> hosts_;    // empty: slots are not counted
  bool limited_;
  int free_;
};

}  // namespace cp_pool
