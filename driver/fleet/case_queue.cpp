#include "driver/fleet/case_queue.h"

namespace cp_pool {

void CaseQueue::add(QueuedCase waiting) {
  std::deque<Place>& group = groups_[waiting.group];
  if (group.empty()) heads_.emplace(next_, waiting.group);
  group.push_back({next_++, waiting.index});
  ++size_;
}

void CaseQueue::put_back(QueuedCase waiting) {
  std::deque<Place>& group = groups_[waiting.group];
  if (!group.empty()) heads_.erase(group.front().order);
  group.push_front({first_, waiting.index});
  heads_.emplace(first_--, waiting.group);
  ++size_;
}

CaseQueue::Heads::const_iterator CaseQueue::choose(int pool) const {
  for (auto head = heads_.begin(); head != heads_.end(); ++head) {
    const auto owner = owners_.find(head->second);
    if (owner == owners_.end() || owner->second == pool) return head;
  }
  return heads_.begin();
}

std::optional<QueuedCase> CaseQueue::peek(int pool) const {
  const auto head = choose(pool);
  if (head == heads_.end()) return std::nullopt;
  return QueuedCase{groups_.at(head->second).front().index, head->second};
}

std::optional<QueuedCase> CaseQueue::take(int pool) {
  const std::optional<QueuedCase> out = peek(pool);
  if (!out) return std::nullopt;
  std::deque<Place>& group = groups_[out->group];
  heads_.erase(group.front().order);
  group.pop_front();
  --size_;
  forget(pool);
  if (group.empty()) {
    groups_.erase(out->group);
  } else {
    heads_.emplace(group.front().order, out->group);
  }
  owners_[out->group] = pool;
  return out;
}

void CaseQueue::forget(int pool) {
  std::erase_if(owners_, [pool](const auto& owner) { return owner.second == pool; });
}

std::vector<std::size_t> CaseQueue::take_all() {
  std::map<std::int64_t, std::size_t> in_order;
  for (const auto& [group, places] : groups_) {
    for (const Place& place : places) in_order.emplace(place.order, place.index);
  }
  std::vector<std::size_t> out;
  out.reserve(in_order.size());
  for (const auto& [order, index] : in_order) out.push_back(index);
  groups_.clear();
  heads_.clear();
  size_ = 0;
  return out;
}

}  // namespace cp_pool
