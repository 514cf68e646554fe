// The part of the scheduler that lets keys of several clients take turns on the slots: see scheduler.h.
#include <algorithm>
#include <utility>

#include "driver/pool/scheduler.h"

namespace cp_pool {

// Called before cases are sent. Retires pools that would get another case, as few as the overdue keys need.
void Scheduler::yield_to_overdue(std::vector<Decision>& out, Seconds now) {
  int room = slots_.free();
  const std::vector<int> overdue = overdue_keys(now);
  if (!overdue.empty()) room += coming_slots();
  for (const int key : overdue) {
    if (pools_for_cases(key) > 0) {  // a pool that has started early
      make_way(out, now);
      continue;
    }
    const int needed = keys_[static_cast<std::size_t>(key)].slots;
    if (needed > room) room += retire_idle(needed - room, out, now);
    room = std::max(room - needed, 0);
  }
}

// Returns the overdue keys, the one that has waited longest first.
std::vector<int> Scheduler::overdue_keys(Seconds now) const {
  std::vector<std::pair<Seconds, int>> waiting;
  for (int number = 0; number < static_cast<int>(keys_.size()); ++number) {
    const Key& key = keys_[static_cast<std::size_t>(number)];
    if (!key.waits_since || now <= *key.waits_since || now < *key.waits_since + settings_.turn) continue;
    if (!key.queue.empty() && !key.held && others_compete(number, false))
      waiting.emplace_back(*key.waits_since, number);
  }
  std::ranges::sort(waiting);
  std::vector<int> out;
  out.reserve(waiting.size());
  for (const auto& [since, number] : waiting) out.push_back(number);
  return out;
}

bool Scheduler::may_yield(const Pool& pool, Seconds now) const {
  const Key& key = key_of(pool);
  if (key.queue.empty()) return true;
  return pool.has_worked && (!key.turn_since || now >= *key.turn_since + settings_.turn);
}

// A key begins to wait when pools of other keys hold slots. It goes on waiting while those keys have cases, even if
// their pools have just been retired for it, so that they do not come before it.
void Scheduler::note_who_waits(Seconds now) {
  if (!slots_.limited()) return;
  for (int number = 0; number < static_cast<int>(keys_.size()); ++number) {
    Key& key = keys_[static_cast<std::size_t>(number)];
    if (has_pool_with_slots(number)) {
      key.waits_since.reset();
      continue;
    }
    const bool waits = !key.queue.empty() && others_compete(number, !key.waits_since);
    if (!waits) {
      key.waits_since.reset();
    } else if (!key.waits_since) {
      key.waits_since = now;
    }
    if (waits || key.queue.empty()) key.turn_since.reset();
  }
}

// Whether another key (with_pools: another key with pools) has cases of a client other than one that waits in this key.
bool Scheduler::others_compete(int number, bool with_pools) const {
  const Key& key = keys_[static_cast<std::size_t>(number)];
  for (int other = 0; other < static_cast<int>(keys_.size()); ++other) {
    if (other == number || (with_pools && !has_pool_with_slots(other))) continue;
    if (works_for_others(other, key)) return true;
  }
  return false;
}

// Whether key `number` has a case, waiting or on a pool, of a client other than one that waits in key `than`.
bool Scheduler::works_for_others(int number, const Key& than) const {
  const int client = than.queue.next_client();
  const bool has_several = than.queue.clients_in_turn() > 1;
  const auto differs = [&](int served) { return has_several || served != client; };
  const CaseQueue& queue = keys_[static_cast<std::size_t>(number)].queue;
  if (queue.clients_in_turn() > 1 || (!queue.empty() && differs(queue.next_client()))) return true;
  return std::ranges::any_of(pools_, [&](const auto& entry) {
    const Pool& pool = entry.second;
    return pool.key == number && pool.state == PoolState::busy && differs(pool.sent.client);
  });
}

}  // namespace cp_pool
