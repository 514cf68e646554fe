// All cases of one pool key (device and world size), one after another: starts pools, replaces lost ones, and gives the
// key up when that does not help. The one coroutine of a pool runs here.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "driver/ledger.h"
#include "driver/pool/pool.h"
#include "driver/pool/run_context.h"
#include "driver/pool/slots.h"
#include "driver/pool/wakeup.h"
#include "driver/run.h"

namespace cp_pool {

class Lane {
 public:
  struct Job {
    std::size_t index = 0;  // in the ledger
    const NamedCase* named = nullptr;
  };

  // on_finished: after each case, its event emitted.
  Lane(RunContext& run, Ledger& ledger, Slots& slots, int world_size,
       std::function<void(const CaseFinished&)> on_finished);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane();

  // The case must stay alive until it has finished.
  void add(Job job);
  void no_more_jobs();

  // Returns when every job has its outcome and the pool is gone. What a sink throws comes out here.
  asio::awaitable<void> serve();

  // Kills a pool that serve() has left behind when it threw.
  void drop_pool() { pool_.reset(); }

 private:
  asio::awaitable<std::optional<Job>> next_job();
  asio::awaitable<bool> take_slots();
  asio::awaitable<void> run_job(const Job& job);
  asio::awaitable<bool> ensure_pool();
  asio::awaitable<bool> retire_if_lost();
  asio::awaitable<void> retire(Retirement retirement);
  void note_start_failure(StartFailure failure);
  void note_outcome(CaseOutcome outcome);
  std::optional<Retirement> retirement_by_age() const;
  [[nodiscard]] const NamedCase* next_on_this_pool()
      const;  // after the job that is being run; nullptr if none is known
  void judge_bits(CaseFinished& finished);
  // counted: the run knows of its failure.
  void finish(const Job& job, CaseFinished finished, bool counted = false);
  CaseFinished report(const Job& job, Attempt attempt, std::int64_t seq, int attempts) const;
  CaseFinished never_run(const Job& job, CaseOutcome outcome, std::string reason) const;
  std::string why_stopped() const;

  RunContext& run_;
  Ledger& ledger_;
  Slots& slots_;
  int world_size_;
  std::function<void(const CaseFinished&)> on_finished_;
  std::string key_;
  Wakeup wakeup_;
  std::deque<Job> jobs_;
  bool closed_ = false;
  std::optional<Pool> pool_;
  int generation_ = 0;
  int cases_on_pool_ = 0;
  int failed_starts_ = 0;                // running
  int timeouts_ = 0;                     // running
  std::optional<std::string> given_up_;  // why no pool of this key is started any more
  CaseOutcome given_up_outcome_ = CaseOutcome::infra;
  std::vector<StderrTail> last_start_tails_;
};

}  // namespace cp_pool
