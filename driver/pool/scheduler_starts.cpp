// The part of the scheduler that decides which pools start, and which idle ones are retired to make room for them: see
// scheduler.h.
#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "driver/pool/scheduler.h"

namespace cp_pool {

namespace {

constexpr Seconds kGuessedStart{1.0};  // used until times have been measured
constexpr Seconds kGuessedCase{0.1};
// A start that runs beside cases takes longer than one that was measured alone.
constexpr double kEarly = 2;

}  // namespace

void Scheduler::Room::keep(int slots) {
  const int of_free = std::min(free, slots);
  free -= of_free;
  coming -= std::min(coming, slots - of_free);
}

void Scheduler::start_pools(std::vector<Decision>& out, Seconds now) {
  Room room{slots_.free(), coming_slots()};
  std::set<int> passed_over;
  const auto start = [&](int key) {
    start_pool(key, out, now);
    if (slots_.limited()) room.free -= keys_.at(key).slots;
  };
  for (const int key : overdue_keys(now)) {
    if (pools_for_cases(key) > 0) continue;  // a pool that has started early, and gets its slots by itself
    const int needed = keys_.at(key).slots;
    if (needed <= room.free) {
      start(key);
    } else {
      room.keep(needed);
      passed_over.insert(key);
    }
  }
  while (const std::optional<int> key = most_urgent(passed_over, now)) {
    const int needed = keys_.at(*key).slots;
    int given = 0;
    if (needed > room.free && needed <= room.free + room.coming + slots_in(PoolState::idle)) {
      given = retire_idle(needed - room.free - room.coming, out, now);
      room.free += given;
    }
    const bool starts = needed <= room.free;
    if (starts) start(*key);
    // The idle pools may have held more slots than this key needed, and the surplus may be all that a passed-over key
    // lacked. So begin again.
    if (given > 0 && !passed_over.empty()) return start_pools(out, now);
    if (starts) continue;
    passed_over.insert(*key);
    // Free and coming slots are kept for the key if they suffice. If busy pools hold what it needs, others may use the
    // free slots meanwhile.
    if (needed <= room.free + room.coming) room.keep(needed);
  }
  if (passed_over.empty()) {
    start_spares(out, now);
  } else {
    start_early(passed_over, out, now);
  }
}

void Scheduler::start_pool(int key, std::vector<Decision>& out, Seconds now) {
  const int number = ++last_pool_;
  Pool pool;
  pool.key = key;
  pool.slots = slots_.take(keys_.at(key).slots);
  pool.since = now;
  out.emplace_back(StartPool{number, key, pool.slots, false});
  pools_.emplace(number, std::move(pool));
}

void Scheduler::start_spares(std::vector<Decision>& out, Seconds now) {
  if (!settings_.spare || !slots_.limited() || without_spares_) return;
  for (const auto& [number, key] : keys_) {
    const bool working =
        count(number, PoolState::busy) > 0 && count(number, PoolState::idle) + count(number, PoolState::starting) == 0;
    const bool may_be_of_use = !closed_ || !key.queue.empty();
    if (working && may_be_of_use && key.slots <= slots_.free()) start_pool(number, out, now);
  }
}

// Returns the key that would end last, among those that should get a pool.
std::optional<int> Scheduler::most_urgent(const std::set<int>& passed_over, Seconds now) const {
  std::optional<int> best;
  std::pair<Seconds, int> best_rank;  // time that the key still needs, slots of its pool
  for (const auto& [number, key] : keys_) {
    if (passed_over.contains(number)) continue;
    const std::optional<Seconds> left = time_left(number, now);
    if (!left) continue;
    const std::pair rank{*left, key.slots};
    if (best && rank <= best_rank) continue;
    best = number;
    best_rank = rank;
  }
  return best;
}

// Returns how long the key's pools need for its waiting cases: infinite without a pool. nullopt: another pool does not
// pay.
std::optional<Seconds> Scheduler::time_left(int number, Seconds now) const {
  const Key& key = keys_.at(number);
  if (key.queue.empty() || key.held) return std::nullopt;
  const int pools = pools_for_cases(number);
  if (pools == 0) return Seconds{std::numeric_limits<double>::infinity()};
  // Until some pool has become ready, a key gets one pool only, so that a worker that cannot start fails once.
  if (!slots_.limited() || !proven_) return std::nullopt;
  const auto waiting = static_cast<double>(key.queue.size());
  if (waiting <= count(number, PoolState::starting)) return std::nullopt;
  const Seconds start = start_time(key);
  Seconds of_a_case = case_time(key);
  if (settings_.cases_of_a_pool > 0) of_a_case += start / settings_.cases_of_a_pool;
  Seconds left = waiting * of_a_case / pools;
  if (const auto since = held_up_since(number); since && now >= *since + start) {
    left = std::max({left, now - *since, start});
  }
  return left >= start ? std::optional(left) : std::nullopt;
}

Seconds Scheduler::start_time(const Key& key) const {
  return key.start_time.value_or(start_time_.value_or(kGuessedStart));
}

// Returns since when all pools of the key have been busy with their current cases; nullopt if one of them is not busy.
std::optional<Seconds> Scheduler::held_up_since(int key) const {
  std::optional<Seconds> out;
  for (const auto& [number, pool] : pools_) {
    if (pool.key != key || pool.state == PoolState::ending) continue;
    if (pool.state != PoolState::busy) return std::nullopt;
    out = std::max(out.value_or(pool.since), pool.since);
  }
  return out;
}

// Retires idle pools that together hold at least `wanted` slots, and as few more as possible, or all that may yield if
// they do not suffice. Pools that no case waits for go first, then those that have been idle for longest. Returns how
// many slots they held.
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
      if (pool->second.state != PoolState::idle || !may_yield(pool->second, now)) continue;
      if (!pool->second.awaited.empty()) continue;  // it waits for slots itself
      if (best == pools_.end() || worth(pool->second) > worth(best->second)) best = pool;
    }
    if (best == pools_.end()) break;
    given += static_cast<int>(best->second.slots.size());
    retire(best->first, out, now);
  }
  return given;
}

// --- Pools that start on slots that other pools still hold ---

// Starts the pool of one of these keys, for which no slots are free: of the key without a pool that needs most slots.
// Slots of pools that end are not used early, since their ranks may still need the memory that a start needs.
void Scheduler::start_early(const std::set<int>& keys, std::vector<Decision>& out, Seconds now) {
  if (!settings_.early_starts || !slots_.limited() || !proven_ || early_pool() != nullptr) return;
  const Key* best = nullptr;
  int number = 0;
  for (const int candidate : keys) {
    const Key& key = keys_.at(candidate);
    if (pools_for_cases(candidate) > 0 || (best != nullptr && key.slots <= best->slots)) continue;
    if (key.slots <= slots_.free() + coming_slots()) continue;  // it starts when those pools are gone
    best = &key;
    number = candidate;
  }
  if (best == nullptr) return;
  std::vector<int> candidates;
  for (int slot = 0; slot < slots_.size(); ++slot) {
    if (slots_.is_free(slot)) candidates.push_back(slot);
  }
  const Seconds soon = kEarly * start_time(*best);
  for (const auto& [other, pool] : pools_) {
    if (pool.state != PoolState::ending && free_in(pool) <= soon)
      candidates.insert(candidates.end(), pool.slots.begin(), pool.slots.end());
  }
  if (static_cast<int>(candidates.size()) < best->slots) return;
  Pool pool;
  pool.key = number;
  pool.since = now;
  pool.awaited = slots_.choose(candidates, best->slots);
  out.emplace_back(StartPool{++last_pool_, number, pool.awaited, true});
  pools_.emplace(last_pool_, std::move(pool));
  take_awaited_slots();
}

// Retires idle pools that hold slots for which a pool waits.
void Scheduler::make_way(std::vector<Decision>& out, Seconds now) {
  const Pool* const early = early_pool();
  if (early == nullptr) return;
  const std::vector<int> awaited = early->awaited;
  for (const auto& [number, pool] : pools_) {
    if (&pool == early || pool.state != PoolState::idle || !may_yield(pool, now)) continue;
    if (std::ranges::find_first_of(pool.slots, awaited) != pool.slots.end()) retire(number, out, now);
  }
}

void Scheduler::take_awaited_slots() {
  for (auto& [number, pool] : pools_) {
    if (pool.awaited.empty()) continue;
    std::erase_if(pool.awaited, [&, &held = pool.slots](int slot) {
      const bool taken = slots_.take_if_free(slot);
      if (taken) held.push_back(slot);
      return taken;
    });
  }
}

// Returns the pool that waits for slots; nullptr if there is none.
const Scheduler::Pool* Scheduler::early_pool() const {
  const auto found = std::ranges::find_if(pools_, [](const auto& entry) { return !entry.second.awaited.empty(); });
  return found == pools_.end() ? nullptr : &found->second;
}

// Returns when the pool is expected to give its slots back. The case that it runs is taken to end soon.
Seconds Scheduler::free_in(const Pool& pool) const {
  const Key& key = key_of(pool);
  const auto pools = static_cast<double>(std::max(pools_for_cases(pool.key), 1));
  Seconds out = static_cast<double>(key.queue.size()) * case_time(key) / pools;
  if (pool.state == PoolState::starting) out += start_time(key);
  return out;
}

Seconds Scheduler::case_time(const Key& key) const {
  return key.case_time.value_or(case_time_.value_or(kGuessedCase));
}

// Slots of pools that end, which no pool waits for.
int Scheduler::coming_slots() const {
  const Pool* const early = early_pool();
  int out = 0;
  for (const auto& [number, pool] : pools_) {
    if (pool.state != PoolState::ending) continue;
    out += static_cast<int>(std::ranges::count_if(
        pool.slots, [&](int slot) { return early == nullptr || std::ranges::count(early->awaited, slot) == 0; }));
  }
  return out;
}

}  // namespace cp_pool
