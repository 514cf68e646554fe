// All pools of the process. The fleet carries out what the scheduler (scheduler.h) decides, and tells it what has
// happened. Its clients (fleet_client.cpp) are runs: a local run is the only client of its fleet; a service has one
// client for each run of each of its users.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <asio/awaitable.hpp>

#include "driver/core/clock.h"
#include "driver/core/events.h"
#include "driver/core/ledger.h"
#include "driver/core/run.h"
#include "driver/os/wakeup.h"
#include "driver/pool/pool.h"
#include "driver/pool/run_context.h"
#include "driver/pool/scheduler.h"
#include "driver/ranks/pool_host.h"

namespace cp_pool {

struct FleetClient;

// A case, from being added until it has an outcome.
struct Job {
  std::size_t index = 0;  // index in the ledger of its run
  FleetClient* client = nullptr;
  int key = 0;  // the scheduler's number of its key
  Item named;
  int attempts = 0;  // number of times that it was sent to a pool
  int lost = 0;      // number of pools that were lost before the case had started
  int tried = 0;     // number of tries that ended but were followed by another try (--retries)
};

// Returns the event of a case with the fields that do not depend on a pool.
CaseFinished finished_case(std::size_t index, const Item& named, CaseOutcome outcome, std::string reason);

// Why no more pools of a key are started for a run, and how its cases end.
struct GivenUp {
  std::string reason;  // a sentence
  CaseOutcome outcome = CaseOutcome::infra;
  std::vector<StderrTail> tails = {};   // of the ranks of the last start
  bool another_start_may_help = false;  // cases that are retried (--retries)
};

// Decides when a run gives up a key, because starting more pools for its cases makes no sense.
class StartBackoff {
 public:
  explicit StartBackoff(const RunConfig& config) : config_(config) {}

  void note_start() { failed_starts_ = 0; }
  void note_failed_start(const StartFailure& failure);
  void note_outcome(CaseOutcome outcome);

  // nullopt: pools are started.
  [[nodiscard]] const std::optional<GivenUp>& given_up() const { return given_up_; }

 private:
  const RunConfig& config_;
  int failed_starts_ = 0;  // in a row
  int timeouts_ = 0;       // in a row
  std::optional<GivenUp> given_up_;
};

// A run as the fleet sees it: its ledger, and when it gives up a key. This is the one place where a case is entered in
// the ledger and case_finished is emitted.
struct FleetClient {
  // client_number: unique in the fleet.
  FleetClient(int client_number, RunContext& context) : number(client_number), run(context) {}
  FleetClient(const FleetClient&) = delete;
  FleetClient& operator=(const FleetClient&) = delete;
  ~FleetClient() = default;

  // The end of a case, or of one of its tries, on this pool.
  [[nodiscard]] CaseFinished ended_on(const Job& job, const Pool& pool, std::int64_t seq, Conclusion conclusion) const;
  // The end of a case that no pool has run.
  [[nodiscard]] CaseFinished unrun(const Job& job, CaseOutcome outcome, std::string reason,
                                   std::vector<StderrTail> tails) const;

  // Finishes the case. counted: RunContext::count_failure() was already called for it.
  void finish(const Job& job, CaseFinished end, bool counted = false);
  // Emits the end of a try that is followed by another one. The ledger does not count it.
  void note_try(Job& job, CaseFinished end);

  // To be called for each case that has got its outcome; the client may be gone afterwards.
  void count_finished() {
    if (--unfinished == 0 && on_all_finished) on_all_finished();
  }

  int number;
  RunContext& run;
  Ledger ledger;
  std::size_t unfinished = 0;                            // number of cases that were added and have no outcome
  std::map<int, StartBackoff> backoff;                   // by the scheduler's number of the key
  std::function<void(const CaseFinished&)> on_finished;  // called after the event was emitted
  std::function<void()> on_all_finished;                 // called when its last unfinished case has finished

 private:
  void judge_bits(CaseFinished& finished);
};

// Returns FleetSettings::slots for a list of cases.
int slot_count(const RunConfig& config);

// The owner of the pools: a local run or a service. A program is a number by which the owner knows what a worker's
// ranks are started with.
class PoolOwner {
 public:
  virtual ~PoolOwner() = default;

  // Returns the run that the pool is started, kept and ended for. It stays valid until the pool is gone. wanted_by: the
  // client whose case waits for the pool; nullptr: the pool is a spare.
  virtual RunContext& home(int pool, int program, const FleetClient* wanted_by) = 0;
  // Returns what the ranks of this pool are started with. Called after home().
  virtual RankStart start_of(int pool, int program) = 0;
  // Called when the pool is about to get a case of this client.
  virtual void works_for(int /*pool*/, FleetClient& /*client*/) {}
  // Whether the worker has changed since the pool was started. If so, the pool gets no more cases.
  virtual bool is_outdated(int /*pool*/) { return false; }
  virtual void gone(int /*pool*/) {}
};

class Fleet {
 public:
  struct Config {
    FleetSettings scheduling;
    // If one GPU is named for each slot, a pool sees the GPUs of its slots, else all of them. Empty: it sees all
    // visible GPUs.
    std::vector<std::string> gpus = {};
    // Hosts with their slots, as in `scheduling`; empty: there is one host, or the hosts are not known.
    std::vector<HostShare> hosts = {};
  };
  Fleet(PoolHost& host, PoolOwner& owner, Config config);

  // Adds a client, which must stay alive until remove(). remove() must not be called while a case of the client is
  // unfinished.
  void add_client(FleetClient& client) { clients_.emplace(client.number, &client); }
  void remove(const FleetClient& client) { clients_.erase(client.number); }
  // Adds a case. Returns its index in the client's events.
  std::size_t add(FleetClient& client, Item item, int program = 0);
  // Returns the cases of a program without an outcome, oldest first, at most `most`, by the number of their job.
  [[nodiscard]] std::vector<std::pair<std::size_t, const Item*>> cases_of(int program, std::size_t most) const;
  // Those of these jobs that still wait for a pool end as skip. reasons: by the number of the job.
  void skip(const std::map<std::size_t, std::string>& reasons);
  // While a program is held, no pool starts for it.
  void hold_program(int program, bool held);
  // Holds the client's waiting cases while nobody takes its events, until it is called with false.
  void hold(const FleetClient& client, bool held) {
    scheduler_.hold(client.number, held);
    decide_soon();
  }
  // After this call every pool ends when no case is left for it.
  void no_more_cases() {
    closed_ = true;
    scheduler_.no_more_cases();
    decide_soon();
  }
  void retire_idle_pools() {
    scheduler_.retire_idle_pools();
    decide_soon();
  }
  // Forgets a program. It must have no unfinished cases and no pools, and get no more cases.
  void forget_program(int program);
  // Called when RunContext::stop of a run has changed, so that waiting cases of a stopped run end as not run; and after
  // PoolHost::pause, during which nothing is decided.
  void handle_stop() { decide_soon(); }

  // Name and place of a pool that the fleet does not manage. For use when done().
  PoolId next_pool_id(const RunConfig& config, int world_size);
  [[nodiscard]] PoolPlace place_of(int ranks, int slots) const;

  [[nodiscard]] bool closed() const { return closed_; }
  // Whether no case can come any more and no pool is left.
  [[nodiscard]] bool done() const { return closed_ && pools_.empty() && jobs_.empty(); }

  // An existing pool and its state.
  struct LivingPool {
    std::unique_ptr<Pool> pool;
    RunContext* home = nullptr;  // PoolOwner::home
    int key = 0;                 // the scheduler's number
    int program = 0;
    int world_size = 0;
    std::vector<int> slots;
    PoolState state = PoolState::starting;
    Clock::time_point since;          // when the state began
    std::optional<std::size_t> sent;  // number of its case, while busy
    std::int64_t seq = 0;             // of that case
    int cases = 0;                    // number of cases that it has run
  };
  [[nodiscard]] const std::map<int, LivingPool>& pools() const { return pools_; }
  // The case that the pool runs; nullptr: none.
  [[nodiscard]] const Job* job_of(const LivingPool& pool) const { return pool.sent ? &jobs_.at(*pool.sent) : nullptr; }

  // Called with an exception of a sink that came out of a pool's coroutine.
  std::function<void(const std::exception_ptr&)> on_error;
  std::function<void()> on_done;

 private:
  struct Key {
    int program = 0;
    int world_size = 0;
    int slots = 0;  // number of slots that a pool holds; 0 = one for each rank

    auto operator<=>(const Key&) const = default;
  };

  static Seconds now() { return Clock::now().time_since_epoch(); }
  int key_of(const Key& key);
  void let_wait(std::size_t number);
  void decide_soon();
  void decide();
  void end_stopped_cases();
  void retry_unrun_cases(std::vector<std::size_t>& given_up);
  void carry_out(const StartPool& start);
  void carry_out(const RetirePool& retire) { pools_.at(retire.pool).pool->give_up(); }
  void carry_out(const SendCase& send);
  void end_unrun(std::size_t number, CaseOutcome outcome, const std::string& reason,
                 const std::vector<StderrTail>& tails = {});

  // fleet_pools.cpp: the coroutine of each pool, from its start to its end
  asio::awaitable<void> serve(int number);
  asio::awaitable<Retirement> live(int number, LivingPool& living);
  std::optional<Pool::Next> begin_case(int number);
  std::optional<Retirement> end_case(int number, LivingPool& living, Conclusion conclusion);
  static void set_state(LivingPool& living, PoolState state);
  // Calls note(StartBackoff&) for each client that has had cases of the key.
  template <typename Note>
  void for_each_backoff(int key, const Note& note);
  [[nodiscard]] const Item* next_of(int number) const;
  void forget(int number, const std::exception_ptr& error);

  [[nodiscard]] PoolPlace place_on(int ranks, const std::vector<int>& slots) const;

  PoolHost& host_;
  PoolOwner& owner_;
  Config config_;
  Scheduler scheduler_;
  std::map<int, FleetClient*> clients_;     // by number
  std::map<int, Key> keys_;                 // by the scheduler's number
  std::map<std::string, int> generations_;  // number of pools started, by name of the key
  std::set<int> held_programs_;
  std::map<std::size_t, std::string> skipped_;  // why jobs are skipped without a pool, by number
  std::map<std::size_t, Job> jobs_;             // jobs without an outcome, by number
  std::map<int, LivingPool> pools_;             // by the scheduler's number of the pool
  std::size_t last_job_ = 0;
  bool closed_ = false;
  bool will_decide_ = false;
  Alarm look_again_;
};

}  // namespace cp_pool
