// The cases of one key that wait for a pool, shared by its pools. They leave in the order in which they came, except
// that pools side by side take cases of different groups where there are several: cases of a group share expected
// results, which each pool would have to compute again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace cp_pool {

// A case of the run: its index in the ledger, and which cases it shares expected results with.
struct QueuedCase {
  std::size_t index = 0;
  std::size_t group = 0;
  bool operator==(const QueuedCase&) const = default;
};

class CaseQueue {
 public:
  void add(QueuedCase waiting);
  // A case whose pool was lost before it had started: it is the next one.
  void put_back(QueuedCase waiting);

  // The case that take() would give this pool now.
  [[nodiscard]] std::optional<QueuedCase> peek(int pool) const;
  // The first case of a group that no other pool takes its cases from; if there is none, the first case. The group is
  // then this pool's. nullopt: no case waits.
  std::optional<QueuedCase> take(int pool);
  // The pool takes no more cases.
  void forget(int pool);

  // Empties the queue. Returns the indices in order.
  std::vector<std::size_t> take_all();

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }

 private:
  struct Place {
    std::int64_t order;
    std::size_t index;
  };
  using Heads = std::map<std::int64_t, std::size_t>;  // the order of a group's first case, and the group

  [[nodiscard]] Heads::const_iterator choose(int pool) const;

  std::map<std::size_t, std::deque<Place>> groups_;  // those that have cases
  Heads heads_;
  std::map<std::size_t, int> owners_;  // of a group: the pool that took its last case
  std::int64_t first_ = 0;
  std::int64_t next_ = 1;
  std::size_t size_ = 0;
};

}  // namespace cp_pool
