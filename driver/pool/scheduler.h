// Decides which pools exist, on which slots, and which case each pool runs. The scheduler is a state machine: it is
// told what has happened and returns decisions. It starts nothing, waits for nothing and reads no clock, so tests can
// run it under any load at any speed.
//
// A slot is a device: a GPU or a CPU core. A key stands for a kind of pool, here for a number of ranks. A pool holds
// one slot for each rank (all slots if there are fewer) from its start until it is gone. An idle pool that is ended
// gives its slots back at once, since its ranks do nothing more. Several pools of a key share the key's queue. A pool
// may start early, on slots that other pools still hold (FleetSettings::early_starts): it gets each of these slots as
// soon as the slot is free, before anybody else, and its first case when it has all of them. A client
// is whoever asks for cases: a run without a service is client 0, a service has many. Clients share pools.
//
// The aims, in order of precedence:
// 1. No pool is idle while a case of its key waits. Clients take turns, a case each (case_queue.h).
// 2. Every key with cases gets a pool; the key that needs most slots first, as small ones fit into what is left.
// 3. No client waits for others for ever: see below.
// 4. Free slots go to the key that would end last, as long as another pool pays: its start must take less time than the
// key still needs, or than its cases have been waiting because every pool of the key is held up by a long case.
// 5. An idle pool stays until somebody else needs its slots, or no case of its key can come any more.
// 6. If pools may start early, the next key's pool is ready when its slots become free.
//
// A key waits for others if it has cases and no pool, while pools of other keys hold slots for cases of other clients.
// After FleetSettings::turn it is overdue and takes precedence: free slots are kept for it, and pools that have just
// ended a case are retired for it instead of getting another case, until the key has its slots. Of several overdue
// keys, the one that has waited longest is first. A pool is not retired for an overdue key if it has run no case yet,
// or if its key has had a ready pool for less than a turn. So keys that need the same slots have them for a turn each,
// and for one case at least. A client that is alone is never overdue.
//
// The cases of a held client stay in their queues: no pool starts for them, and no key waits or is overdue because of
// them. They still have to run, so a fleet that gets no more cases keeps the idle pools of their key. So a fleet is
// over when it gets no more cases, no case waits (held ones included), and it has no pools.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "cases/enum_names.h"
#include "driver/pool/case_queue.h"
#include "driver/pool/slot_table.h"

namespace cp_pool {

using Seconds = std::chrono::duration<double>;

struct FleetSettings {
  // Number of slots. None: there are as many as are asked for, but each key has one pool.
  std::optional<int> slots = {};
  SlotDistances distances = {};
  // Number of slots of each host, in order; empty: all are on one host. A pool is placed on one host if possible.
  std::vector<int> slots_of_hosts = {};
  // Each pool is replaced after so many cases (the owner of the scheduler ends it); 0 = never.
  int cases_of_a_pool = 0;
  // A pool that was idle for so long is retired; 0 = never. If `spare` is set, the only idle pool of a key is kept
  // while another pool of the key works.
  Seconds idle_time{0};
  // How long pools of a key may go on while a key of another client waits for their slots. Each change of keys costs
  // the start of a pool, so several start times are a sensible value.
  Seconds turn{2};
  // If all pools of a key work and slots are free that no key waits for, the key gets one more pool, so that after a
  // crash the next case starts at once. In a fleet that gets no more cases it does so only if a case of the key waits.
  // Needs `slots`.
  bool spare = false;
  // The first pool of a key may start early, if the slots that it needs are expected to be free within twice the time
  // of its start. At most one pool at a time waits for slots in this way. Needs `slots`.
  bool early_starts = false;
};

enum class PoolState { starting, idle, busy, ending };
template <>
inline constexpr auto kNames<PoolState> = kSpelledNames<PoolState::ending>;

// Start pool number `pool` for this key. slots: the numbers of its slots, from 0; empty if slots are not limited.
// early: other pools still hold some of these slots.
struct StartPool {
  int pool = 0;
  int key = 0;
  std::vector<int> slots;
  bool early = false;
};
// End this pool. It is idle, or it is starting and no longer needed.
struct RetirePool {
  int pool = 0;
};
struct SendCase {
  int pool = 0;
  std::size_t index = 0;
};
using Decision = std::variant<StartPool, RetirePool, SendCase>;

class Scheduler {
 public:
  explicit Scheduler(const FleetSettings& settings);

  // Adds a key for pools of so many ranks and returns its number, from 0.
  int add_key(int ranks);
  // Removes a key that has no cases and no pools and gets no more cases.
  void remove_key(int key) { keys_.erase(key); }

  // The following functions report what has happened. `now` is a time on any clock that does not go backwards.
  void case_added(int key, QueuedCase added);
  void no_more_cases() { closed_ = true; }
  void pool_ready(int pool, Seconds now);
  void case_ended(int pool, Seconds now);
  // The pool was lost before its case had started. The case runs next.
  void case_returned(int pool);
  // The case on this pool has ended and is to be run once more. It runs next, on any pool of its key.
  void case_tried(int pool, Seconds now);
  // The pool takes no more cases. It holds its slots until pool_gone(), unless it was idle when it was retired.
  void pool_ends(int pool);
  void pool_gone(int pool);
  // Removes one client's waiting cases of all keys, held ones included, and returns their indices, ascending. The
  // client is no longer held, and nothing is stored for it. A case of the client that is running may still come back
  // (case_returned) and has to be dropped again then.
  std::vector<std::size_t> drop_cases_of(int client);
  // Does the same for one client's cases of one key, but returns the indices in the order of the queue. The client is
  // no longer held in that key.
  std::vector<std::size_t> drop_cases_of(int client, int key) { return keys_.at(key).queue.take_all_of(client); }
  // Holds the client's cases, later ones included, until it is called with false.
  void hold(int client, bool held);
  // While a key is held, no pool starts for it.
  void hold_key(int key, bool held) { keys_.at(key).held = held; }

  // The pool gets no more cases: it is retired as soon as it is idle, or at once if it is starting. Another pool takes
  // its place if cases wait.
  void outdate_pool(int pool) { pools_.at(pool).outdated = true; }
  // The next decide() retires the pools that are idle now and that no case waits for. Spares are not started again
  // until a case is added.
  void retire_idle_pools();
  // Returns the numbers of the pools that have no case now and that decide() may send one.
  [[nodiscard]] std::vector<int> idle_pools() const;

  // Returns what is to be done now, in this order. Each decision is returned once.
  std::vector<Decision> decide(Seconds now);
  // Returns when decide() is to be called again even if nothing happens; nullopt: it need not be.
  [[nodiscard]] std::optional<Seconds> look_again_at(Seconds now) const;

  // Returns the index of the case that this pool would get next if it were idle now.
  [[nodiscard]] std::optional<std::size_t> next_of(int pool) const;

 private:
  // The mean of measured times.
  struct Mean {
    Seconds sum{0};
    int count = 0;

    void add(Seconds value) {
      sum += value;
      ++count;
    }
    [[nodiscard]] Seconds value_or(Seconds guess) const { return count == 0 ? guess : sum / count; }
  };

  struct Key {
    int slots = 1;  // number of slots that a pool of the key holds
    CaseQueue queue;
    bool held = false;  // see hold_key
    Mean case_time;
    Mean start_time;
    std::optional<Seconds> waits_since;  // since when the key has waited for others; none: it does not
    // When the first pool became ready of those that the key has had, or tried to get, without a break.
    std::optional<Seconds> turn_since;
  };

  struct Pool {
    int key = 0;
    PoolState state = PoolState::starting;
    std::vector<int> slots;    // those that it holds
    std::vector<int> awaited;  // those that others still hold, if it has started early
    Seconds since{0};          // when the state began
    QueuedCase sent;           // the current case, while the pool is busy
    bool outdated = false;     // the pool gets no more cases
    bool has_worked = false;
  };

  // Slots that are free, and slots of pools that are ending: what is left of both for the keys that are served later.
  struct Room {
    int free = 0;
    int coming = 0;
    void keep(int slots);
  };

  [[nodiscard]] Key& key_of(const Pool& pool) { return keys_.at(pool.key); }
  [[nodiscard]] const Key& key_of(const Pool& pool) const { return keys_.at(pool.key); }
  void set_state(Pool& pool, PoolState state, Seconds now);
  void retire(int number, std::vector<Decision>& out, Seconds now);
  void give_back(Pool& pool);
  void retire_outdated(std::vector<Decision>& out, Seconds now);
  void send_cases(std::vector<Decision>& out, Seconds now);
  void retire_needless(std::vector<Decision>& out, Seconds now);
  void retire_unused(std::vector<Decision>& out, Seconds now);
  [[nodiscard]] int count(int key, PoolState state) const;
  [[nodiscard]] static bool is_for_cases(const Pool& pool, int key);
  [[nodiscard]] int pools_for_cases(int key) const;
  [[nodiscard]] bool has_pool_with_slots(int key) const;
  [[nodiscard]] bool is_spare(const Pool& pool) const;
  [[nodiscard]] int slots_in(PoolState state) const;

  // scheduler_starts.cpp
  void start_pools(std::vector<Decision>& out, Seconds now);
  void start_pool(int key, std::vector<Decision>& out, Seconds now);
  void start_spares(std::vector<Decision>& out, Seconds now);
  [[nodiscard]] std::optional<int> most_urgent(const std::set<int>& passed_over, Seconds now) const;
  [[nodiscard]] std::optional<Seconds> time_left(int number, Seconds now) const;
  [[nodiscard]] Seconds start_time(const Key& key) const;
  [[nodiscard]] std::optional<Seconds> held_up_since(int key) const;
  int retire_idle(int wanted, std::vector<Decision>& out, Seconds now);
  [[nodiscard]] int coming_slots() const;

  void start_early(const std::set<int>& keys, std::vector<Decision>& out, Seconds now);
  void make_way(std::vector<Decision>& out, Seconds now);
  void take_awaited_slots();
  [[nodiscard]] const Pool* early_pool() const;
  [[nodiscard]] Seconds free_in(const Pool& pool) const;
  [[nodiscard]] Seconds case_time(const Key& key) const;

  // Taking turns among keys of several clients.
  void yield_to_overdue(std::vector<Decision>& out, Seconds now);
  void update_waiting_keys(Seconds now);
  [[nodiscard]] std::vector<int> overdue_keys(Seconds now) const;
  [[nodiscard]] bool may_yield(const Pool& pool, Seconds now) const;
  [[nodiscard]] bool others_compete(int number, bool with_pools) const;
  [[nodiscard]] bool works_for_others(int number, const Key& than) const;

  FleetSettings settings_;
  std::map<int, Key> keys_;    // by number
  std::map<int, Pool> pools_;  // by number
  SlotTable slots_;
  std::set<int> held_;  // held clients
  int next_key_ = 0;
  int last_pool_ = 0;
  bool closed_ = false;
  bool proven_ = false;          // a pool has become ready at least once
  bool without_spares_ = false;  // no spares are started until a case is added
  Mean case_time_;               // over the cases of all keys
  Mean start_time_;
};

}  // namespace cp_pool
