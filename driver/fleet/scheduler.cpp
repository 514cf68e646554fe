#include "driver/fleet/scheduler.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace cp_pool {

namespace {

// Until something was measured.
constexpr Seconds kGuessedCase{0.1};
constexpr Seconds kGuessedStart{1.0};

}  // namespace

void Scheduler::Mean::add(Seconds value) {
  sum_ += value;
  ++count_;
}

std::optional<Seconds> Scheduler::Mean::value() const {
  if (count_ == 0) return std::nullopt;
  return sum_ / count_;
}

Scheduler::Scheduler(const FleetSettings& settings) : settings_(settings), slots_(settings.slots) {}

int Scheduler::add_key(int ranks) {
  Key key;
  key.slots = slots_.held_by(ranks);
  for (const int client : held_) key.queue.hold(client, true);
  keys_.push_back(std::move(key));
  return static_cast<int>(keys_.size()) - 1;
}

void Scheduler::case_added(int key, QueuedCase added) {
  keys_.at(static_cast<std::size_t>(key)).queue.add(added);
  without_spares_ = false;
}

void Scheduler::pool_ready(int pool, Seconds now) {
  Pool& ready = pools_.at(pool);
  proven_ = true;
  if (ready.state != State::starting) return;  // it is being retired
  const Seconds took = now - ready.since;
  Key& key = key_of(ready);
  key.start_time.add(took);
  start_time_.add(took);
  if (!key.turn_since) key.turn_since = now;
  set_state(ready, State::idle, now);
}

void Scheduler::case_ended(int pool, Seconds now) {
  Pool& idle = pools_.at(pool);
  const Seconds took = now - idle.since;
  key_of(idle).case_time.add(took);
  case_time_.add(took);
  idle.has_worked = true;
  set_state(idle, State::idle, now);
}

void Scheduler::case_returned(int pool) {
  const Pool& lost = pools_.at(pool);
  key_of(lost).queue.put_back(lost.sent);
}

void Scheduler::pool_ends(int pool) {
  Pool& ending = pools_.at(pool);
  ending.state = State::ending;
  key_of(ending).queue.forget(pool);
}

void Scheduler::pool_gone(int pool) {
  auto gone = pools_.extract(pool);
  slots_.give_back(gone.mapped().slots);
  key_of(gone.mapped()).queue.forget(pool);
}

std::vector<std::size_t> Scheduler::drop_cases(int key) {
  return keys_.at(static_cast<std::size_t>(key)).queue.take_all();
}

std::vector<std::size_t> Scheduler::drop_cases_of(int client) {
  held_.erase(client);
  std::vector<std::size_t> out;
  for (Key& key : keys_) {
    const std::vector<std::size_t> dropped = key.queue.take_all_of(client);
    out.insert(out.end(), dropped.begin(), dropped.end());
  }
  std::ranges::sort(out);
  return out;
}

void Scheduler::hold(int client, bool held) {
  if (held) {
    held_.insert(client);
  } else {
    held_.erase(client);
  }
  for (Key& key : keys_) key.queue.hold(client, held);
}

void Scheduler::outdate_pool(int pool) {
  pools_.at(pool).outdated = true;
}

void Scheduler::retire_idle_pools() {
  without_spares_ = true;
  for (auto& [number, pool] : pools_) {
    if (pool.state == State::idle && key_of(pool).queue.empty()) pool.outdated = true;
  }
}

std::vector<int> Scheduler::idle_pools() const {
  std::vector<int> out;
  for (const auto& [number, pool] : pools_) {
    if (pool.state == State::idle && !pool.outdated) out.push_back(number);
  }
  return out;
}

std::optional<std::size_t> Scheduler::next_of(int pool) const {
  const Pool& asked = pools_.at(pool);
  const auto next = asked.outdated ? std::nullopt : key_of(asked).queue.peek(pool);
  return next ? std::optional(next->index) : std::nullopt;
}

bool Scheduler::has_waiting_cases() const {
  return std::ranges::any_of(keys_, [](const Key& key) { return key.queue.size() + key.queue.held_size() > 0; });
}

std::vector<Decision> Scheduler::decide(Seconds now) {
  std::vector<Decision> out;
  retire_outdated(out, now);
  yield_to_overdue(out, now);
  send_cases(out, now);
  retire_needless(out, now);
  retire_unused(out, now);
  start_pools(out, now);
  note_who_waits(now);
  return out;
}

void Scheduler::set_state(Pool& pool, State state, Seconds now) {
  pool.state = state;
  pool.since = now;
}

// An idle pool gives its slots back at once.
void Scheduler::retire(int number, std::vector<Decision>& out, Seconds now) {
  Pool& pool = pools_.at(number);
  if (pool.state == State::idle) slots_.give_back(pool.slots);
  set_state(pool, State::ending, now);
  out.emplace_back(RetirePool{number});
}

void Scheduler::retire_outdated(std::vector<Decision>& out, Seconds now) {
  for (const auto& [number, pool] : pools_) {
    if (pool.outdated && (pool.state == State::idle || pool.state == State::starting)) retire(number, out, now);
  }
}

void Scheduler::send_cases(std::vector<Decision>& out, Seconds now) {
  for (auto& [number, pool] : pools_) {
    if (pool.state != State::idle) continue;
    const auto next = key_of(pool).queue.take(number);
    if (!next) continue;
    pool.sent = *next;
    set_state(pool, State::busy, now);
    out.emplace_back(SendCase{number, next->index});
  }
}

// Those that no case can come for any more. A case that runs may come back, but then another pool is started.
void Scheduler::retire_needless(std::vector<Decision>& out, Seconds now) {
  if (!closed_) return;
  for (const auto& [number, pool] : pools_) {
    const bool waits = pool.state == State::idle || pool.state == State::starting;
    const CaseQueue& queue = key_of(pool).queue;
    if (waits && queue.size() + queue.held_size() == 0) retire(number, out, now);
  }
}

// Those that have been idle for too long.
void Scheduler::retire_unused(std::vector<Decision>& out, Seconds now) {
  if (settings_.idle_time <= Seconds{0}) return;
  for (const auto& [number, pool] : pools_) {
    if (pool.state != State::idle || now < pool.since + settings_.idle_time || is_spare(pool)) continue;
    retire(number, out, now);
  }
}

// A key's only idle pool, while others of its work.
bool Scheduler::is_spare(const Pool& pool) const {
  return settings_.spare && count(pool.key, State::busy) > 0 && count(pool.key, State::idle) == 1;
}

void Scheduler::Room::keep(int slots) {
  const int of_free = std::min(free, slots);
  free -= of_free;
  coming -= std::min(coming, slots - of_free);
}

void Scheduler::start_pools(std::vector<Decision>& out, Seconds now) {
  Room room{slots_.free(), slots_in(State::ending)};
  std::set<int> passed_over;
  const auto start = [&](int key) {
    start_pool(key, out, now);
    if (slots_.limited()) room.free -= keys_[static_cast<std::size_t>(key)].slots;
  };
  for (const int key : overdue_keys(now)) {
    const int needed = keys_[static_cast<std::size_t>(key)].slots;
    if (needed <= room.free) {
      start(key);
    } else {
      room.keep(needed);
      passed_over.insert(key);
    }
  }
  while (const std::optional<int> key = most_urgent(passed_over, now)) {
    const int needed = keys_[static_cast<std::size_t>(*key)].slots;
    int given = 0;
    if (needed > room.free && needed <= room.free + room.coming + slots_in(State::idle)) {
      given = retire_idle(needed - room.free - room.coming, out, now);
      room.free += given;
    }
    const bool starts = needed <= room.free;
    if (starts) start(*key);
    // What the idle pools held beyond that may be all that a key lacked which was passed over.
    if (given > 0 && !passed_over.empty()) return start_pools(out, now);
    if (starts) continue;
    passed_over.insert(*key);
    // While busy pools hold what it needs, others may use what is free.
    if (needed <= room.free + room.coming) room.keep(needed);
  }
  if (passed_over.empty()) start_spares(out, now);
}

void Scheduler::start_pool(int key, std::vector<Decision>& out, Seconds now) {
  const int number = ++last_pool_;
  Pool pool;
  pool.key = key;
  pool.slots = slots_.take(keys_[static_cast<std::size_t>(key)].slots);
  pool.since = now;
  out.emplace_back(StartPool{number, key, pool.slots});
  pools_.emplace(number, std::move(pool));
}

void Scheduler::start_spares(std::vector<Decision>& out, Seconds now) {
  if (!settings_.spare || !slots_.limited() || without_spares_) return;
  for (int number = 0; number < static_cast<int>(keys_.size()); ++number) {
    const Key& key = keys_[static_cast<std::size_t>(number)];
    const bool working =
        count(number, State::busy) > 0 && count(number, State::idle) + count(number, State::starting) == 0;
    const bool may_be_of_use = !closed_ || !key.queue.empty();
    if (working && may_be_of_use && key.slots <= slots_.free()) start_pool(number, out, now);
  }
}

// Of the keys that should get a pool, that which would end last.
std::optional<int> Scheduler::most_urgent(const std::set<int>& passed_over, Seconds now) const {
  std::optional<int> best;
  std::pair<Seconds, int> best_rank;  // the time that it needs, the slots of a pool
  for (int key = 0; key < static_cast<int>(keys_.size()); ++key) {
    if (passed_over.contains(key)) continue;
    const std::optional<Seconds> left = time_left(key, now);
    if (!left) continue;
    const std::pair rank{*left, keys_[static_cast<std::size_t>(key)].slots};
    if (best && rank <= best_rank) continue;
    best = key;
    best_rank = rank;
  }
  return best;
}

// How long the key's pools need for its waiting cases, for ever without a pool; nullopt: another pool does not pay.
std::optional<Seconds> Scheduler::time_left(int number, Seconds now) const {
  const Key& key = keys_[static_cast<std::size_t>(number)];
  if (key.queue.empty()) return std::nullopt;
  const int pools = pools_for_cases(number);
  if (pools == 0) return Seconds{std::numeric_limits<double>::infinity()};
  // A worker that cannot start is found out by one pool of a key.
  if (!slots_.limited() || !proven_) return std::nullopt;
  const auto waiting = static_cast<double>(key.queue.size());
  if (waiting <= count(number, State::starting)) return std::nullopt;
  const Seconds start = start_time(key);
  Seconds of_a_case = key.case_time.value().value_or(case_time_.value().value_or(kGuessedCase));
  if (settings_.cases_of_a_pool > 0) of_a_case += start / settings_.cases_of_a_pool;
  Seconds left = waiting * of_a_case / pools;
  if (const auto since = held_up_since(number); since && now >= *since + start) {
    left = std::max({left, now - *since, start});
  }
  return left >= start ? std::optional(left) : std::nullopt;
}

Seconds Scheduler::start_time(const Key& key) const {
  return key.start_time.value().value_or(start_time_.value().value_or(kGuessedStart));
}

// Since when each pool of the key has been busy with one case; nullopt: not each is.
std::optional<Seconds> Scheduler::held_up_since(int key) const {
  std::optional<Seconds> out;
  for (const auto& [number, pool] : pools_) {
    if (pool.key != key || pool.state == State::ending || pool.outdated) continue;
    if (pool.state != State::busy) return std::nullopt;
    out = std::max(out.value_or(pool.since), pool.since);
  }
  return out;
}

std::optional<Seconds> Scheduler::look_again_at(Seconds now) const {
  std::optional<Seconds> out;
  const auto look_at = [&](Seconds then) {
    if (then > now) out = std::min(out.value_or(then), then);
  };
  if (settings_.idle_time > Seconds{0}) {
    for (const auto& [number, pool] : pools_) {
      if (pool.state == State::idle) look_at(pool.since + settings_.idle_time);
    }
  }
  if (!slots_.limited()) return out;
  for (int number = 0; number < static_cast<int>(keys_.size()); ++number) {
    const Key& key = keys_[static_cast<std::size_t>(number)];
    if (key.queue.empty()) continue;
    if (const auto since = held_up_since(number)) look_at(*since + start_time(key));
    if (key.waits_since) look_at(*key.waits_since + settings_.turn);
  }
  return out;
}

int Scheduler::count(int key, State state) const {
  return static_cast<int>(std::ranges::count_if(
      pools_, [&](const auto& pool) { return pool.second.key == key && pool.second.state == state; }));
}

// Those that run its cases, or will.
int Scheduler::pools_for_cases(int key) const {
  return static_cast<int>(std::ranges::count_if(pools_, [&](const auto& entry) {
    const Pool& pool = entry.second;
    return pool.key == key && pool.state != State::ending && !pool.outdated;
  }));
}

int Scheduler::slots_in(State state) const {
  int out = 0;
  for (const auto& [number, pool] : pools_) {
    if (pool.state == state) out += static_cast<int>(pool.slots.size());
  }
  return out;
}

// Gives up idle pools that hold at least so many slots, and as few more as it can: first those that no case waits for;
// of equal ones those that have been idle for longest. Returns how many slots they hold.
int Scheduler::retire_idle(int wanted, std::vector<Decision>& out, Seconds now) {
  int given = 0;
  while (given < wanted) {
    const auto worth = [&](const Pool& pool) {
      const int slots = static_cast<int>(pool.slots.size());
      const bool enough = slots >= wanted - given;
      return std::tuple{key_of(pool).queue.empty(), enough, enough ? -slots : slots, -pool.since};
    };
    auto best = pools_.end();
    for (auto pool = pools_.begin(); pool != pools_.end(); ++pool) {
      if (pool->second.state != State::idle || !may_yield(pool->second, now)) continue;
      if (best == pools_.end() || worth(pool->second) > worth(best->second)) best = pool;
    }
    if (best == pools_.end()) break;
    given += static_cast<int>(best->second.slots.size());
    retire(best->first, out, now);
  }
  return given;
}

}  // namespace cp_pool
