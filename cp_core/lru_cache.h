// A cache of the values that were used last, up to a sum of weights.
#pragma once

#include <cstddef>
#include <iterator>
#include <list>
#include <map>
#include <utility>

namespace cp_pool {

// Not thread-safe.
template <typename Key, typename Value>
class LruCache {
 public:
  // capacity: the largest sum of weights, in the unit of the caller.
  explicit LruCache(std::size_t capacity) : capacity_(capacity) {}

  // Returns the value and marks it as used last, or null if the key is not there. The pointer is valid until the next
  // call of keep(), forget() or clear().
  const Value* find(const Key& key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return nullptr;
    order_.splice(order_.end(), order_, found->second.place);
    return &found->second.value;
  }
  // Does not mark the value as used.
  [[nodiscard]] bool contains(const Key& key) const { return entries_.contains(key); }

  // Stores a value, in place of any with an equal key. The least recently used values make room. A value heavier than
  // the capacity is not kept, and a value with an equal key is then removed.
  void keep(const Key& key, Value value, std::size_t weight) {
    forget(key);
    if (weight > capacity_) return;
    while (weight_ + weight > capacity_) forget(*order_.front());
    const auto [entry, inserted] =
        entries_.emplace(key, Entry{.value = std::move(value), .weight = weight, .place = {}});
    entry->second.place = order_.insert(order_.end(), &entry->first);
    weight_ += weight;
  }

  void forget(const Key& key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;
    weight_ -= found->second.weight;
    order_.erase(found->second.place);
    entries_.erase(found);
  }

  void clear() {
    order_.clear();
    entries_.clear();
    weight_ = 0;
  }

  [[nodiscard]] std::size_t weight() const { return weight_; }

 private:
  using Order = std::list<const Key*>;
  struct Entry {
    Value value;
    std::size_t weight = 0;
    typename Order::iterator place;
  };

  std::size_t capacity_;
  std::size_t weight_ = 0;
  std::map<Key, Entry> entries_;
  Order order_;  // the keys of the entries, the least recently used first
};

}  // namespace cp_pool
