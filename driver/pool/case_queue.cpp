#include "driver/pool/case_queue.h"

#include <algorithm>

#include "driver/core/mapped.h"

namespace cp_pool {

// Counts one more case of the client and returns the client. If it had no cases here, its turn comes after everybody
// else's.
CaseQueue::Client& CaseQueue::enter(int number) {
  Client& client = clients_[number];
  ++client.size;
  if (held_.contains(number)) {
    ++held_size_;
    return client;
  }
  ++size_;
  if (!client.turn) client.turn = turns_.insert(turns_.end(), number);
  return client;
}

void CaseQueue::leave_turns(Client& client) {
  if (!client.turn) return;
  turns_.erase(*client.turn);
  client.turn.reset();
}

void CaseQueue::add(QueuedCase waiting) {
  Client& client = enter(waiting.client);
  std::deque<Place>& group = client.groups[waiting.group];
  if (group.empty()) client.heads.emplace(next_, waiting.group);
  group.push_back({next_++, waiting.index});
}

void CaseQueue::put_back(QueuedCase waiting) {
  Client& client = enter(waiting.client);
  std::deque<Place>& group = client.groups[waiting.group];
  if (!group.empty()) client.heads.erase(group.front().order);
  group.push_front({first_, waiting.index});
  client.heads.emplace(first_--, waiting.group);
  if (client.turn) turns_.splice(turns_.begin(), turns_, *client.turn);
}

CaseQueue::Heads::const_iterator CaseQueue::choose(const Client& client, int pool) const {
  for (auto head = client.heads.begin(); head != client.heads.end(); ++head) {
    const auto owner = owners_.find(head->second);
    if (owner == owners_.end() || owner->second == pool) return head;
  }
  return client.heads.begin();
}

std::optional<QueuedCase> CaseQueue::peek(int pool) const {
  if (empty()) return std::nullopt;
  const int number = turns_.front();
  const Client& client = clients_.at(number);
  const std::size_t group = choose(client, pool)->second;
  return QueuedCase{client.groups.at(group).front().index, group, number};
}

std::optional<QueuedCase> CaseQueue::take(int pool) {
  const std::optional<QueuedCase> out = peek(pool);
  if (!out) return std::nullopt;
  Client& client = clients_.at(out->client);
  const auto group = client.groups.find(out->group);
  std::deque<Place>& places = group->second;
  client.heads.erase(places.front().order);
  places.pop_front();
  --client.size;
  --size_;
  if (places.empty()) {
    client.groups.erase(group);
  } else {
    client.heads.emplace(places.front().order, out->group);
  }
  forget(pool);
  owners_[out->group] = pool;
  if (client.size > 0) {
    turns_.splice(turns_.end(), turns_, *client.turn);
  } else {
    leave_turns(client);
    clients_.erase(out->client);
  }
  return out;
}

void CaseQueue::hold(int client, bool held) {
  const bool changed = held ? held_.insert(client).second : held_.erase(client) > 0;
  const auto found = clients_.find(client);
  if (!changed || found == clients_.end()) return;
  Client& waiting = found->second;
  if (held) {
    leave_turns(waiting);
    size_ -= waiting.size;
    held_size_ += waiting.size;
  } else {
    waiting.turn = turns_.insert(turns_.end(), client);
    size_ += waiting.size;
    held_size_ -= waiting.size;
  }
}

std::vector<std::size_t> CaseQueue::take_all_of(int client) {
  hold(client, false);
  const auto gone = clients_.find(client);
  if (gone == clients_.end()) return {};
  std::vector<Place> all;
  for (const auto& [group, places] : gone->second.groups) all.insert(all.end(), places.begin(), places.end());
  std::ranges::sort(all, {}, &Place::order);
  size_ -= gone->second.size;
  leave_turns(gone->second);
  clients_.erase(gone);
  return mapped(all, &Place::index);
}

}  // namespace cp_pool
