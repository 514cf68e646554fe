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

Scheduler::Scheduler(const FleetSettings& settings) : settings_(settings) {
  if (settings.slots) slot_free_.assign(static_cast<std::size_t>(std::max(*settings.slots, 1)), true);
}

int Scheduler::add_key(int ranks) {
  Key key;
  key.slots = settings_.slots ? std::min(ranks, std::max(*settings_.slots, 1)) : ranks;
  keys_.push_back(std::move(key));
  return static_cast<int>(keys_.size()) - 1;
}

void Scheduler::case_added(int key, QueuedCase added) {
  keys_.at(static_cast<std::size_t>(key)).queue.add(added);
}

void Scheduler::pool_ready(int pool, Seconds now) {
  Pool& ready = pools_.at(pool);
  proven_ = true;
  if (ready.state != State::starting) return;  // it is being retired
  const Seconds took = now - ready.since;
  keys_[static_cast<std::size_t>(ready.key)].start_time.add(took);
  start_time_.add(took);
  set_state(ready, State::idle, now);
}

void Scheduler::case_ended(int pool, Seconds now) {
  Pool& idle = pools_.at(pool);
  const Seconds took = now - idle.since;
  keys_[static_cast<std::size_t>(idle.key)].case_time.add(took);
  case_time_.add(took);
  set_state(idle, State::idle, now);
}

void Scheduler::case_returned(int pool) {
  const Pool& lost = pools_.at(pool);
  keys_[static_cast<std::size_t>(lost.key)].queue.put_back(lost.sent);
}

void Scheduler::pool_ends(int pool) {
  Pool& ending = pools_.at(pool);
  ending.state = State::ending;
  keys_[static_cast<std::size_t>(ending.key)].queue.forget(pool);
}

void Scheduler::pool_gone(int pool) {
  auto gone = pools_.extract(pool);
  give_back_slots(gone.mapped());
  keys_[static_cast<std::size_t>(gone.mapped().key)].queue.forget(pool);
}

std::vector<std::size_t> Scheduler::drop_cases(int key) {
  return keys_.at(static_cast<std::size_t>(key)).queue.take_all();
}

std::optional<std::size_t> Scheduler::next_of(int pool) const {
  const auto next = keys_[static_cast<std::size_t>(pools_.at(pool).key)].queue.peek(pool);
  return next ? std::optional(next->index) : std::nullopt;
}

bool Scheduler::has_waiting_cases() const {
  return std::ranges::any_of(keys_, [](const Key& key) { return !key.queue.empty(); });
}

std::vector<Decision> Scheduler::decide(Seconds now) {
  std::vector<Decision> out;
  send_cases(out, now);
  retire_needless(out, now);
  start_pools(out, now);
  return out;
}

void Scheduler::set_state(Pool& pool, State state, Seconds now) {
  pool.state = state;
  pool.since = now;
}

void Scheduler::send_cases(std::vector<Decision>& out, Seconds now) {
  for (auto& [number, pool] : pools_) {
    if (pool.state != State::idle) continue;
    const auto next = keys_[static_cast<std::size_t>(pool.key)].queue.take(number);
    if (!next) continue;
    pool.sent = *next;
    set_state(pool, State::busy, now);
    out.emplace_back(SendCase{number, next->index});
  }
}

// Those that no case can come for any more. A case that runs may come back, but then another pool is started.
void Scheduler::retire_needless(std::vector<Decision>& out, Seconds now) {
  if (!closed_) return;
  for (auto& [number, pool] : pools_) {
    const bool waits = pool.state == State::idle || pool.state == State::starting;
    if (!waits || !keys_[static_cast<std::size_t>(pool.key)].queue.empty()) continue;
    if (pool.state == State::idle) give_back_slots(pool);
    set_state(pool, State::ending, now);
    out.emplace_back(RetirePool{number});
  }
}

void Scheduler::start_pools(std::vector<Decision>& out, Seconds now) {
  int free = settings_.slots ? static_cast<int>(std::ranges::count(slot_free_, true)) : std::numeric_limits<int>::max();
  int coming = slots_in(State::ending);
  std::set<int> passed_over;
  while (const std::optional<int> key = most_urgent(passed_over, now)) {
    const int needed = keys_[static_cast<std::size_t>(*key)].slots;
    if (needed > free && needed <= free + coming + slots_in(State::idle)) {
      free += retire_idle(needed - free - coming, out, now);
    }
    if (needed <= free) {
      const int number = ++last_pool_;
      Pool pool{.key = *key, .state = State::starting, .slots = take_slots(needed), .since = now, .sent = {}};
      out.emplace_back(StartPool{number, *key, pool.slots});
      pools_.emplace(number, std::move(pool));
      if (settings_.slots) free -= needed;
      continue;
    }
    passed_over.insert(*key);
    // While busy pools hold what it needs, others may use what is free.
    if (needed > free + coming) continue;
    coming -= needed - free;
    free = 0;
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
  const int pools = count(number, {State::starting, State::idle, State::busy});
  if (pools == 0) return Seconds{std::numeric_limits<double>::infinity()};
  // A worker that cannot start is found out by one pool of a key.
  if (!settings_.slots || !proven_) return std::nullopt;
  const auto waiting = static_cast<double>(key.queue.size());
  if (waiting <= count(number, {State::starting})) return std::nullopt;
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
    if (pool.key != key || pool.state == State::ending) continue;
    if (pool.state != State::busy) return std::nullopt;
    out = std::max(out.value_or(pool.since), pool.since);
  }
  return out;
}

std::optional<Seconds> Scheduler::look_again_at(Seconds now) const {
  std::optional<Seconds> out;
  if (!settings_.slots) return out;
  for (int key = 0; key < static_cast<int>(keys_.size()); ++key) {
    const Key& waiting = keys_[static_cast<std::size_t>(key)];
    const auto since = waiting.queue.empty() ? std::nullopt : held_up_since(key);
    if (!since) continue;
    const Seconds then = *since + start_time(waiting);
    if (then > now) out = std::min(out.value_or(then), then);
  }
  return out;
}

int Scheduler::count(int key, std::set<State> states) const {
  return static_cast<int>(std::ranges::count_if(
      pools_, [&](const auto& pool) { return pool.second.key == key && states.contains(pool.second.state); }));
}

int Scheduler::slots_in(State state) const {
  int out = 0;
  for (const auto& [number, pool] : pools_) {
    if (pool.state == state) out += static_cast<int>(pool.slots.size());
  }
  return out;
}

// Gives up idle pools that hold at least so many slots, and as few more as it can; of equal ones those that have been
// idle for longest. Returns how many slots they hold.
int Scheduler::retire_idle(int wanted, std::vector<Decision>& out, Seconds now) {
  int given = 0;
  while (given < wanted) {
    const auto worth = [&](const Pool& pool) {
      const int slots = static_cast<int>(pool.slots.size());
      const bool enough = slots >= wanted - given;
      return std::tuple{enough, enough ? -slots : slots, -pool.since};
    };
    auto best = pools_.end();
    for (auto pool = pools_.begin(); pool != pools_.end(); ++pool) {
      if (pool->second.state != State::idle) continue;
      if (best == pools_.end() || worth(pool->second) > worth(best->second)) best = pool;
    }
    if (best == pools_.end()) break;
    given += static_cast<int>(best->second.slots.size());
    give_back_slots(best->second);
    set_state(best->second, State::ending, now);
    out.emplace_back(RetirePool{best->first});
  }
  return given;
}

void Scheduler::give_back_slots(Pool& pool) {
  for (const int slot : pool.slots) slot_free_[static_cast<std::size_t>(slot)] = true;
  pool.slots.clear();
}

// Neighbours, where there are so many: the shortest row of free slots that is long enough; else the first free ones.
std::vector<int> Scheduler::take_slots(int wanted) {
  std::vector<int> out;
  if (!settings_.slots) return out;
  const int all = static_cast<int>(slot_free_.size());
  const auto is_free = [&](int slot) { return slot < all && slot_free_[static_cast<std::size_t>(slot)]; };
  int best_begin = -1;
  int best_length = all + 1;
  for (int begin = 0; begin < all;) {
    int end = begin;
    while (is_free(end)) ++end;
    if (end - begin >= wanted && end - begin < best_length) {
      best_begin = begin;
      best_length = end - begin;
    }
    begin = end + 1;
  }
  for (int slot = std::max(best_begin, 0); static_cast<int>(out.size()) < wanted; ++slot) {
    if (!is_free(slot)) continue;
    slot_free_[static_cast<std::size_t>(slot)] = false;
    out.push_back(slot);
  }
  return out;
}

}  // namespace cp_pool
