// The part of the scheduler that starts a pool on slots that other pools still hold: see scheduler.h.
#include <algorithm>
#include <utility>

#include "driver/pool/scheduler.h"

namespace cp_pool {

namespace {

constexpr Seconds kGuessedCase{0.1};  // used until times have been measured
// A start that runs beside cases takes longer than one that was measured alone.
constexpr double kEarly = 2;

}  // namespace

// Starts the pool of one of these keys, for which no slots are free: of the key without a pool that needs most slots.
// Slots of pools that end are not used early, since their ranks may still need the memory that a start needs.
void Scheduler::start_early(const std::set<int>& keys, std::vector<Decision>& out, Seconds now) {
  if (!settings_.early_starts || !slots_.limited() || !proven_ || early_pool() != nullptr) return;
  const Key* best = nullptr;
  int number = 0;
  for (const int candidate : keys) {
    const Key& key = keys_[static_cast<std::size_t>(candidate)];
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
  return key.case_time.value().value_or(case_time_.value().value_or(kGuessedCase));
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
