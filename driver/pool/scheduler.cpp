#include "driver/pool/scheduler.h"

#include <algorithm>
#include <iterator>

#include "driver/core/mapped.h"

namespace cp_pool {

Scheduler::Scheduler(const FleetSettings& settings)
    : settings_(settings), slots_(settings.slots, settings.distances, settings.slots_of_hosts) {}

int Scheduler::add_key(int ranks) {
  Key key;
  key.slots = slots_.held_by(ranks);
  for (const int client : held_) key.queue.hold(client, true);
  keys_.emplace(next_key_, std::move(key));
  return next_key_++;
}

void Scheduler::case_added(int key, QueuedCase added) {
  keys_.at(key).queue.add(added);
  without_spares_ = false;
}

void Scheduler::pool_ready(int pool, Seconds now) {
  Pool& ready = pools_.at(pool);
  proven_ = true;
  if (ready.state != PoolState::starting) return;  // the pool is being retired
  const Seconds took = now - ready.since;
  Key& key = key_of(ready);
  key.start_time.add(took);
  start_time_.add(took);
  if (!key.turn_since) key.turn_since = now;
  set_state(ready, PoolState::idle, now);
}

void Scheduler::case_ended(int pool, Seconds now) {
  Pool& idle = pools_.at(pool);
  const Seconds took = now - idle.since;
  key_of(idle).case_time.add(took);
  case_time_.add(took);
  idle.has_worked = true;
  set_state(idle, PoolState::idle, now);
}

void Scheduler::case_returned(int pool) {
  const Pool& lost = pools_.at(pool);
  key_of(lost).queue.put_back(lost.sent);
}

void Scheduler::case_tried(int pool, Seconds now) {
  case_returned(pool);
  case_ended(pool, now);
}

void Scheduler::pool_ends(int pool) {
  Pool& ending = pools_.at(pool);
  ending.state = PoolState::ending;
  ending.awaited.clear();
  key_of(ending).queue.forget(pool);
}

void Scheduler::pool_gone(int pool) {
  auto gone = pools_.extract(pool);
  give_back(gone.mapped());
  key_of(gone.mapped()).queue.forget(pool);
}

std::vector<std::size_t> Scheduler::drop_cases_of(int client) {
  held_.erase(client);
  std::vector<std::size_t> out;
  for (auto& [number, key] : keys_) std::ranges::move(key.queue.take_all_of(client), std::back_inserter(out));
  std::ranges::sort(out);
  return out;
}

void Scheduler::hold(int client, bool held) {
  if (held) {
    held_.insert(client);
  } else {
    held_.erase(client);
  }
  for (auto& [number, key] : keys_) key.queue.hold(client, held);
}

void Scheduler::retire_idle_pools() {
  without_spares_ = true;
  for (auto& [number, pool] : pools_) {
    if (pool.state == PoolState::idle && key_of(pool).queue.empty()) pool.outdated = true;
  }
}

std::vector<int> Scheduler::idle_pools() const {
  std::vector<int> out;
  for (const auto& [number, pool] : pools_) {
    if (pool.state == PoolState::idle && !pool.outdated) out.push_back(number);
  }
  return out;
}

std::optional<std::size_t> Scheduler::next_of(int pool) const {
  const Pool& asked = pools_.at(pool);
  const auto next = asked.outdated ? std::nullopt : key_of(asked).queue.peek(pool);
  return next ? std::optional(next->index) : std::nullopt;
}

std::vector<Decision> Scheduler::decide(Seconds now) {
  std::vector<Decision> out;
  std::size_t decided = 0;
  do {
    decided = out.size();
    retire_outdated(out, now);
    yield_to_overdue(out, now);
    send_cases(out, now);
    retire_needless(out, now);
    retire_unused(out, now);
    make_way(out, now);
    start_pools(out, now);
    update_waiting_keys(now);
    // A pool that had started early may have got its slots from a pool that was retired last.
  } while (settings_.early_starts && out.size() != decided);
  return out;
}

void Scheduler::set_state(Pool& pool, PoolState state, Seconds now) {
  pool.state = state;
  pool.since = now;
}

void Scheduler::give_back(Pool& pool) {
  slots_.give_back(pool.slots);
  take_awaited_slots();
}

// Retires the pool. An idle pool gives its slots back at once.
void Scheduler::retire(int number, std::vector<Decision>& out, Seconds now) {
  Pool& pool = pools_.at(number);
  pool.awaited.clear();
  if (pool.state == PoolState::idle) give_back(pool);
  set_state(pool, PoolState::ending, now);
  out.emplace_back(RetirePool{number});
}

void Scheduler::retire_outdated(std::vector<Decision>& out, Seconds now) {
  for (const auto& [number, pool] : pools_) {
    if (pool.outdated && (pool.state == PoolState::idle || pool.state == PoolState::starting)) retire(number, out, now);
  }
}

void Scheduler::send_cases(std::vector<Decision>& out, Seconds now) {
  for (auto& [number, pool] : pools_) {
    if (pool.state != PoolState::idle || !pool.awaited.empty()) continue;
    const auto next = key_of(pool).queue.take(number);
    if (!next) continue;
    pool.sent = *next;
    set_state(pool, PoolState::busy, now);
    out.emplace_back(SendCase{number, next->index});
  }
}

// Retires pools that no case can come for any more. A running case may still come back, but then another pool is
// started.
void Scheduler::retire_needless(std::vector<Decision>& out, Seconds now) {
  if (!closed_) return;
  for (const auto& [number, pool] : pools_) {
    const bool waits = pool.state == PoolState::idle || pool.state == PoolState::starting;
    const CaseQueue& queue = key_of(pool).queue;
    if (waits && queue.size() + queue.held_size() == 0) retire(number, out, now);
  }
}

// Retires pools that have been idle for too long.
void Scheduler::retire_unused(std::vector<Decision>& out, Seconds now) {
  if (settings_.idle_time <= Seconds{0}) return;
  for (const auto& [number, pool] : pools_) {
    if (pool.state != PoolState::idle || now < pool.since + settings_.idle_time || is_spare(pool)) continue;
    retire(number, out, now);
  }
}

// Whether the pool is its key's only idle one while other pools of the key work.
bool Scheduler::is_spare(const Pool& pool) const {
  return settings_.spare && count(pool.key, PoolState::busy) > 0 && count(pool.key, PoolState::idle) == 1;
}

std::optional<Seconds> Scheduler::look_again_at(Seconds now) const {
  std::optional<Seconds> out;
  const auto look_at = [&](Seconds then) {
    if (then > now) out = std::min(out.value_or(then), then);
  };
  if (settings_.idle_time > Seconds{0}) {
    for (const auto& [number, pool] : pools_) {
      if (pool.state == PoolState::idle) look_at(pool.since + settings_.idle_time);
    }
  }
  if (!slots_.limited()) return out;
  for (const auto& [number, key] : keys_) {
    if (key.queue.empty()) continue;
    if (const auto since = held_up_since(number)) look_at(*since + start_time(key));
    if (key.waits_since) look_at(*key.waits_since + settings_.turn);
  }
  return out;
}

int Scheduler::count(int key, PoolState state) const {
  return static_cast<int>(std::ranges::count_if(
      pools_, [&](const auto& pool) { return pool.second.key == key && pool.second.state == state; }));
}

// Whether the pool runs cases of the key or will run them.
bool Scheduler::is_for_cases(const Pool& pool, int key) {
  return pool.key == key && pool.state != PoolState::ending && !pool.outdated;
}

int Scheduler::pools_for_cases(int key) const {
  return static_cast<int>(
      std::ranges::count_if(pools_, [key](const auto& entry) { return is_for_cases(entry.second, key); }));
}

// Whether the key has a pool that runs its cases, or will run them without waiting for slots.
bool Scheduler::has_pool_with_slots(int key) const {
  return std::ranges::any_of(
      pools_, [key](const auto& entry) { return is_for_cases(entry.second, key) && entry.second.awaited.empty(); });
}

// Pools that wait for slots do not count.
int Scheduler::slots_in(PoolState state) const {
  int out = 0;
  for (const auto& [number, pool] : pools_) {
    if (pool.state == state && pool.awaited.empty()) out += static_cast<int>(pool.slots.size());
  }
  return out;
}

// --- Taking turns among keys of several clients ---

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
    const int needed = keys_.at(key).slots;
    if (needed > room) room += retire_idle(needed - room, out, now);
    room = std::max(room - needed, 0);
  }
}

// Returns the overdue keys, the one that has waited longest first.
std::vector<int> Scheduler::overdue_keys(Seconds now) const {
  std::vector<std::pair<Seconds, int>> waiting;
  for (const auto& [number, key] : keys_) {
    if (!key.waits_since || now <= *key.waits_since || now < *key.waits_since + settings_.turn) continue;
    if (!key.queue.empty() && !key.held && others_compete(number, false))
      waiting.emplace_back(*key.waits_since, number);
  }
  std::ranges::sort(waiting);
  return mapped(waiting, &std::pair<Seconds, int>::second);
}

bool Scheduler::may_yield(const Pool& pool, Seconds now) const {
  const Key& key = key_of(pool);
  if (key.queue.empty()) return true;
  return pool.has_worked && (!key.turn_since || now >= *key.turn_since + settings_.turn);
}

// A key begins to wait when pools of other keys hold slots. It goes on waiting while those keys have cases, even if
// their pools have just been retired for it, so that they do not come before it.
void Scheduler::update_waiting_keys(Seconds now) {
  if (!slots_.limited()) return;
  for (auto& [number, key] : keys_) {
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
  return std::ranges::any_of(keys_, [&](const auto& other) {
    return other.first != number && (!with_pools || has_pool_with_slots(other.first)) &&
           works_for_others(other.first, keys_.at(number));
  });
}

// Whether key `number` has a case, waiting or on a pool, of a client other than one that waits in key `than`.
bool Scheduler::works_for_others(int number, const Key& than) const {
  const int client = than.queue.next_client();
  const bool has_several = than.queue.clients_in_turn() > 1;
  const auto differs = [&](int served) { return has_several || served != client; };
  const CaseQueue& queue = keys_.at(number).queue;
  if (queue.clients_in_turn() > 1 || (!queue.empty() && differs(queue.next_client()))) return true;
  return std::ranges::any_of(pools_, [&](const auto& entry) {
    const Pool& pool = entry.second;
    return pool.key == number && pool.state == PoolState::busy && differs(pool.sent.client);
  });
}

}  // namespace cp_pool
