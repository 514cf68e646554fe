// Which pools there are, on which slots, and which case each pool runs. A state machine: it is told what has happened,
// and decides. It starts nothing, waits for nothing and reads no clock, so that it can be tried under any load at any
// speed.
//
// A slot is a device: a GPU, or a core of the CPU. A key is what a pool can run: here a number of ranks. A pool of a
// key holds a slot a rank (all slots, if there are fewer) from its start until it is gone; an idle one that is ended
// gives them back at once, since its ranks do nothing more. Several pools of a key share its queue.
//
// What it aims at, in this order:
// 1. No pool is idle while a case of its key waits.
// 2. Every key with cases gets a pool; the one that needs most slots first, as small ones fit into what is left.
// 3. Free slots go to the key that would end last, as long as the pool pays: its start takes less time than the key
//    still needs, or than its cases have been waiting for a pool that is held up.
// 4. An idle pool stays for as long as nobody else needs its slots, and a case of its key may still come.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "driver/fleet/case_queue.h"

namespace cp_pool {

using Seconds = std::chrono::duration<double>;

struct FleetSettings {
  // None: as many as are asked for, but each key has one pool.
  std::optional<int> slots;
  // Each pool is replaced after so many cases (whoever runs it sees to that); 0 = never.
  int cases_of_a_pool = 0;
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

  // What has happened. `now`: on any clock that goes forward.
  void case_added(int key, QueuedCase added);
  void no_more_cases() { closed_ = true; }
  void pool_ready(int pool, Seconds now);
  void case_ended(int pool, Seconds now);
  // The case that was sent to this pool had not started when the pool was lost: it is the next to run.
  void case_returned(int pool);
  // The pool takes no further case; it holds its slots until it is gone, unless it was idle when it was retired.
  void pool_ends(int pool);
  void pool_gone(int pool);
  // Takes the key's waiting cases away, and returns their indices in order.
  std::vector<std::size_t> drop_cases(int key);

  // What is to be done now, in this order. Each decision is made once.
  std::vector<Decision> decide(Seconds now);
  // When decide() is to be called again though nothing has happened; nullopt: it need not be.
  [[nodiscard]] std::optional<Seconds> look_again_at(Seconds now) const;

  // The case that this pool would get next, if it were idle now.
  [[nodiscard]] std::optional<std::size_t> next_of(int pool) const;
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
  };

  enum class State { starting, idle, busy, ending };
  struct Pool {
    int key = 0;
    State state = State::starting;
    std::vector<int> slots;
    Seconds since{0};  // the state
    QueuedCase sent;   // while busy
  };

  void set_state(Pool& pool, State state, Seconds now);
  void send_cases(std::vector<Decision>& out, Seconds now);
  void retire_needless(std::vector<Decision>& out, Seconds now);
  void start_pools(std::vector<Decision>& out, Seconds now);
  [[nodiscard]] std::optional<int> most_urgent(const std::set<int>& passed_over, Seconds now) const;
  [[nodiscard]] std::optional<Seconds> time_left(int number, Seconds now) const;
  [[nodiscard]] Seconds start_time(const Key& key) const;
  [[nodiscard]] std::optional<Seconds> held_up_since(int key) const;
  [[nodiscard]] int count(int key, std::set<State> states) const;
  [[nodiscard]] int slots_in(State state) const;
  int retire_idle(int wanted, std::vector<Decision>& out, Seconds now);
  std::vector<int> take_slots(int wanted);
  void give_back_slots(Pool& pool);

  FleetSettings settings_;
  std::vector<Key> keys_;
  std::map<int, Pool> pools_;    // by number
  std::vector<bool> slot_free_;  // by slot
  int last_pool_ = 0;
  bool closed_ = false;
  bool proven_ = false;  // some pool has become ready
  Mean case_time_;       // over all keys
  Mean start_time_;
};

}  // namespace cp_pool
