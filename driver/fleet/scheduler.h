// Which pools there are, on which slots, and which case each pool runs. A state machine: it is told what has happened,
// and decides. It starts nothing, waits for nothing and reads no clock, so that it can be tried under any load at any
// speed.
//
// A slot is a device: a GPU, or a core of the CPU. A key is what a pool can run: here a number of ranks. A pool of a
// key holds a slot a rank (all slots, if there are fewer) from its start until it is gone; an idle one that is ended
// gives them back at once, since its ranks do nothing more. Several pools of a key share its queue. A client is who
// asks for a case: a run of one's own is client 0, a service has many. Clients share pools.
//
// What it aims at, in this order:
// 1. No pool is idle while a case of its key waits. Clients take turns, a case each (driver/fleet/case_queue.h).
// 2. Every key with cases gets a pool; the one that needs most slots first, as small ones fit into what is left.
// 3. No client waits for others for ever: see below.
// 4. Free slots go to the key that would end last, as long as the pool pays: its start takes less time than the key
//    still needs, or than its cases have been waiting for a pool that is held up.
// 5. An idle pool stays for as long as nobody else needs its slots, and a case of its key may still come.
//
// A key waits for others if it has cases and no pool, while pools of other keys hold slots for cases of other clients.
// After FleetSettings::turn it is overdue, and takes precedence: free slots are kept for it, and pools that have ended
// a case are retired for it rather than given another, until it has its slots. The key that has waited longest is
// first. Pools of a key that has had a pool ready for less than a turn are left alone, and so are those that have run
// no case yet: keys which need the same slots have them for a turn each, and a case at least. A client that is alone is
// never overdue.
//
// The cases of a client that is held stay where they are: no pool starts for them, no key waits or is overdue for them.
// They still have to run: has_waiting_cases() counts them, and a fleet that gets no more cases keeps the idle pools of
// their key. So a fleet is over when it gets no more cases, none waits, held or not, and it has no pools.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "driver/fleet/case_queue.h"
#include "driver/fleet/slot_table.h"

namespace cp_pool {

using Seconds = std::chrono::duration<double>;

struct FleetSettings {
  // None: as many as are asked for, but each key has one pool.
  std::optional<int> slots = {};
  SlotDistances distances = {};
  // How many of them each host has, in order; empty: all are on one. A pool is on one host where it can be.
  std::vector<int> slots_of_hosts = {};
  // Each pool is replaced after so many cases (whoever runs it sees to that); 0 = never.
  int cases_of_a_pool = 0;
  // A pool that had nothing to do for so long is retired; 0 = never. Not a key's only idle pool while another of its
  // pools works, if `spare` is set.
  Seconds idle_time{0};
  // How long pools of a key may go on while a key of another client waits for their slots. Each change of keys costs
  // the start of a pool: several times as long as that is sensible.
  Seconds turn{2};
  // A key whose pools all work gets one more if slots are free that no key waits for, so that after a crash the next
  // case starts at once. In a fleet that gets no more cases, only if a case of the key waits. Needs `slots`.
  bool spare = false;
};

// Start pool number `pool` of this key. slots: their numbers, from 0; empty without a limit.
struct StartPool {
  int pool = 0;
  int key = 0;
  std::vector<int> slots;
};
// End this pool, which is idle, or starts and has become needless.
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

  // Returns the number of a new key, from 0: pools of so many ranks.
  int add_key(int ranks);
  // A key without cases and pools, for which no case comes any more: another may get its number.
  void remove_key(int key);

  // What has happened. `now`: on any clock that goes forward.
  void case_added(int key, QueuedCase added);
  void no_more_cases() { closed_ = true; }
  void pool_ready(int pool, Seconds now);
  void case_ended(int pool, Seconds now);
  // The case that was sent to this pool had not started when the pool was lost: it is the next to run.
  void case_returned(int pool);
  // The case that ran on this pool has ended, and is to be run once more: it is the next to run, on whichever pool.
  void case_tried(int pool, Seconds now);
  // The pool takes no further case; it holds its slots until it is gone, unless it was idle when it was retired.
  void pool_ends(int pool);
  void pool_gone(int pool);
  // Takes the key's waiting cases away, held ones too, and returns their indices in order.
  std::vector<std::size_t> drop_cases(int key);
  // The same for the cases of one client, of all keys; ascending. The client is held no longer, and nothing is kept of
  // it. A case of its that runs may still come back (case_returned): it has to be dropped again then.
  std::vector<std::size_t> drop_cases_of(int client);
  // The same for its cases of one key; they are held there no longer.
  std::vector<std::size_t> drop_cases_of(int client, int key);
  // The client's waiting cases, and those that come, stay where they are until it is called with false.
  void hold(int client, bool held);

  // The pool gets no further case: it is retired as soon as it is idle, or at once if it starts. Another takes its
  // place if cases wait.
  void outdate_pool(int pool);
  // Retires, with the next decide(), the pools that are idle now and that no case waits for. Spares are not started
  // again before a case is added.
  void retire_idle_pools();
  // The pools that have no case now, by number: decide() may send them one.
  [[nodiscard]] std::vector<int> idle_pools() const;

  // What is to be done now, in this order. Each decision is made once.
  std::vector<Decision> decide(Seconds now);
  // When decide() is to be called again though nothing has happened; nullopt: it need not be.
  [[nodiscard]] std::optional<Seconds> look_again_at(Seconds now) const;

  // The case that this pool would get next, if it were idle now.
  [[nodiscard]] std::optional<std::size_t> next_of(int pool) const;
  // Held ones count.
  [[nodiscard]] bool has_waiting_cases() const;
  [[nodiscard]] bool has_pools() const { return !pools_.empty(); }

 private:
  // A mean of what was measured.
  class Mean {
   public:
    void add(Seconds value);
    [[nodiscard]] std::optional<Seconds> value() const;

   private:
    Seconds sum_{0};
    int count_ = 0;
  };

  struct Key {
    int slots = 1;  // that a pool of it holds
    CaseQueue queue;
    Mean case_time;
    Mean start_time;
    std::optional<Seconds> waits_since;  // for others
    std::optional<Seconds> turn_since;   // its first pool was ready; it has had a pool, or tried to get one, ever since
  };

  enum class State { starting, idle, busy, ending };
  struct Pool {
    int key = 0;
    State state = State::starting;
    std::vector<int> slots;
    Seconds since{0};       // the state
    QueuedCase sent;        // while busy
    bool outdated = false;  // it gets no further case
    bool has_worked = false;
  };

  // Slots that are free, and those that pools hold which are ending: what is left of them for whoever comes next.
  struct Room {
    int free = 0;
    int coming = 0;
    void keep(int slots);
  };

  [[nodiscard]] Key& key_of(const Pool& pool) { return keys_[static_cast<std::size_t>(pool.key)]; }
  [[nodiscard]] const Key& key_of(const Pool& pool) const { return keys_[static_cast<std::size_t>(pool.key)]; }
  void set_state(Pool& pool, State state, Seconds now);
  void retire(int number, std::vector<Decision>& out, Seconds now);
  void retire_outdated(std::vector<Decision>& out, Seconds now);
  void send_cases(std::vector<Decision>& out, Seconds now);
  void retire_needless(std::vector<Decision>& out, Seconds now);
  void retire_unused(std::vector<Decision>& out, Seconds now);
  [[nodiscard]] int count(int key, State state) const;
  [[nodiscard]] int pools_for_cases(int key) const;
  [[nodiscard]] bool is_spare(const Pool& pool) const;
  [[nodiscard]] int slots_in(State state) const;

  // scheduler_starts.cpp
  void start_pools(std::vector<Decision>& out, Seconds now);
  void start_pool(int key, std::vector<Decision>& out, Seconds now);
  void start_spares(std::vector<Decision>& out, Seconds now);
  [[nodiscard]] std::optional<int> most_urgent(const std::set<int>& passed_over, Seconds now) const;
  [[nodiscard]] std::optional<Seconds> time_left(int number, Seconds now) const;
  [[nodiscard]] Seconds start_time(const Key& key) const;
  [[nodiscard]] std::optional<Seconds> held_up_since(int key) const;
  int retire_idle(int wanted, std::vector<Decision>& out, Seconds now);

  // What keys of several clients owe each other (scheduler_turns.cpp).
  void yield_to_overdue(std::vector<Decision>& out, Seconds now);
  void note_who_waits(Seconds now);
  [[nodiscard]] std::vector<int> overdue_keys(Seconds now) const;
  [[nodiscard]] bool may_yield(const Pool& pool, Seconds now) const;
  [[nodiscard]] bool others_compete(int number, bool with_pools) const;
  [[nodiscard]] bool works_for_others(int number, const Key& than) const;

  FleetSettings settings_;
  std::vector<Key> keys_;
  std::vector<int> removed_keys_;  // whose numbers are free
  std::map<int, Pool> pools_;      // by number
  SlotTable slots_;
  std::set<int> held_;  // clients
  int last_pool_ = 0;
  bool closed_ = false;
  bool proven_ = false;          // some pool has become ready
  bool without_spares_ = false;  // until a case is added
  Mean case_time_;               // over all keys
  Mean start_time_;
};

}  // namespace cp_pool
