// All pools of the process: carries out what the scheduler (driver/fleet/) decides, and tells it what has happened.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "driver/clock.h"
#include "driver/fleet/scheduler.h"
#include "driver/pool/books.h"
#include "driver/pool/fleet_client.h"
#include "driver/pool/lane.h"
#include "driver/pool/pool_host.h"
#include "driver/pool/run_context.h"
#include "driver/pool/wakeup.h"
#include "driver/run.h"

namespace cp_pool {

// FleetSettings::slots for a list of cases.
int slot_count(const RunConfig& config);

// Who owns the pools: a local run, or a service. A launch is a number of the owner's, for all that a worker's ranks are
// started with.
class PoolOwner {
 public:
  PoolOwner() = default;
  PoolOwner(const PoolOwner&) = delete;
  PoolOwner& operator=(const PoolOwner&) = delete;
  virtual ~PoolOwner() = default;

  // What the pool is started, kept and ended for; it stays valid until the pool is gone. wanted_by: whose case waits
  // for it; nullptr: it is a spare.
  virtual RunContext& home(int pool, int launch, const FleetClient* wanted_by) = 0;
  // What the ranks of this pool, which has a home, are started with.
  virtual RankStart start_of(int pool, int launch) = 0;
  // The pool is about to get a case of this client.
  virtual void works_for(int /*pool*/, FleetClient& /*client*/) {}
  // Whether the worker has changed since the pool was started: then it gets no further case.
  virtual bool is_outdated(int /*pool*/) { return false; }
  virtual void gone(int /*pool*/) {}
};

class Fleet {
 public:
  struct Config {
    FleetSettings scheduling;
    // A pool sees the GPUs of its slots, if one is named for each slot; else all of them. Empty: those that are
    // visible.
    std::vector<std::string> gpus;
    // With their slots, as in the scheduling; empty: one host, or not known.
    std::vector<HostShare> hosts = {};
  };
  Fleet(PoolHost& host, PoolOwner& owner, Config config);
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;
  ~Fleet() = default;

  // A client must stay alive until remove(), which must not be called while a case of it is unfinished.
  void add_client(FleetClient& client) { clients_.emplace(client.number, &client); }
  void remove(const FleetClient& client) { clients_.erase(client.number); }
  // The case must stay alive until it has finished. Returns its index in the client's events.
  std::size_t add(FleetClient& client, const NamedCase& named, int launch = 0);
  // Nobody takes the client's events at the moment: its waiting cases stay where they are.
  void hold(const FleetClient& client, bool held);
  // Every pool ends when nothing is left for it.
  void no_more_cases();
  // Idle pools end now.
  void retire_idle_pools();
  // No case of this launch is unfinished, none comes, and no pool of it is left.
  void forget_launch(int launch);
  // A run is stopped (RunContext::stop): what waits of it ends as not run.
  void look_at_stop() { decide_soon(); }

  // Of a pool that is started for nobody's queue, when done(): its name, and what a Pool wants to know.
  PoolId next_pool_id(const RunConfig& config, int world_size);
  [[nodiscard]] PoolPlace place_of(int ranks, int slots) const;

  [[nodiscard]] bool closed() const { return closed_; }
  // No case can come any more, and no pool is left.
  [[nodiscard]] bool done() const { return closed_ && pools_.empty() && jobs_.empty(); }

  // A pool that is there, and what it does.
  enum class PoolState { starting, idle, busy, ending };
  struct LivingPool {
    std::unique_ptr<Lane> lane;
    int launch = 0;
    int world_size = 0;
    std::vector<int> slots;
    PoolState state = PoolState::starting;
    Clock::time_point since;          // it does so
    std::optional<std::size_t> sent;  // while busy: the number of its case
    int cases = 0;                    // that it has run
  };
  [[nodiscard]] const std::map<int, LivingPool>& pools() const { return pools_; }
  // That the pool runs; nullptr: none.
  [[nodiscard]] const Job* job_of(const LivingPool& pool) const { return pool.sent ? &jobs_.at(*pool.sent) : nullptr; }

  std::function<void(const std::exception_ptr&)> on_error;  // of a pool's coroutine: what a sink has thrown
  std::function<void()> on_done;

 private:
  struct Key {
    int launch = 0;
    int world_size = 0;
    int slots = 0;  // that a pool of it holds; 0 = one a rank

    auto operator<=>(const Key&) const = default;
  };

  int key_of(const Key& key);
  void decide_soon();
  void decide();
  void watch_clock();
  void end_what_cannot_run();
  void try_unrun_again(std::vector<std::size_t>& given_up);
  void outdate_pools();
  void carry_out(const StartPool& start);
  void carry_out(const RetirePool& retire) { pools_.at(retire.pool).lane->retire(); }
  void carry_out(const SendCase& send);
  Lane::Functions functions_of(int pool, int key);
  void set_state(int pool, PoolState state);
  void end_case(int pool, const Job& job, CaseOutcome outcome);
  void note_start(int key);
  void note_failed_start(int key, const StartFailure& failure);
  [[nodiscard]] const NamedCase* next_of(int pool) const;
  [[nodiscard]] std::vector<std::string> gpus_of(const std::vector<int>& slots) const;
  [[nodiscard]] PoolPlace place_on(int ranks, const std::vector<int>& slots) const;
  static std::string why_stopped(const RunContext& run);
  void forget(int pool, const std::exception_ptr& error);

  PoolHost& host_;
  PoolOwner& owner_;
  std::vector<std::string> gpus_;
  std::vector<HostShare> hosts_;
  std::optional<int> slots_;
  Scheduler scheduler_;
  std::map<int, FleetClient*> clients_;     // by number
  std::map<Key, int> keys_;                 // the scheduler's number
  std::map<int, Key> by_number_;            // the same
  std::map<std::string, int> generations_;  // of pools, by the name of their key
  std::vector<std::size_t> skipped_;        // numbers of jobs that no pool gets
  std::map<std::size_t, Job> jobs_;         // that have no outcome, by the number of the case
  std::map<int, LivingPool> pools_;         // by the scheduler's number of the pool
  std::size_t last_job_ = 0;
  bool closed_ = false;
  bool will_decide_ = false;
  Timer look_again_;
};

}  // namespace cp_pool
