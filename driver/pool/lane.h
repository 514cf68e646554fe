// The coroutine of one pool, from its start to its end. It runs the cases that the fleet sends, one after another, and
// says when the pool can take the next case and when it is of no more use.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "driver/pool/books.h"
#include "driver/pool/pool.h"
#include "driver/pool/run_context.h"
#include "driver/run.h"

namespace cp_pool {

class Lane {
 public:
  // Functions that the lane calls. None of them may destroy the lane.
  struct Functions {
    std::function<void()> ready;  // the pool can take a case
    std::function<void(const StartFailure& failure)> cannot_start;
    // The case is in the books, and the job may be destroyed.
    std::function<void(const Job& job, CaseOutcome outcome)> case_ended;
    std::function<void()> case_returned;  // the case had not started and has to be run again
    std::function<void()> case_tried;     // the case is retried, on this pool or another
    std::function<void()> ends;           // the pool takes no more cases
    // Returns the case that this pool is to run after the current one; nullptr if it is not known.
    std::function<const Item*()> next;
  };

  // All arguments but the last are those of Pool.
  Lane(RunContext& home, RankStart start, PoolId id, int world_size, PoolPlace place, Functions functions);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane() = default;  // kills the pool if serve() has ended by an exception

  // Returns when the pool is gone. Rethrows an exception of a sink.
  asio::awaitable<void> serve();

  // Runs this case on the pool, which must have no case. The job must stay alive until case_ended, case_returned or
  // case_tried is called.
  void send(Job& job);
  // Ends the pool, which must have no case, or gives up its start.
  void retire() { pool_.give_up(); }

  [[nodiscard]] const Pool& pool() const { return pool_; }

 private:
  asio::awaitable<Retirement> live();
  std::optional<Pool::Next> begin_job();
  std::optional<Retirement> end_job(Attempt result);
  [[nodiscard]] static bool is_run_again(const Job& job, const Attempt& attempt);
  [[nodiscard]] std::optional<Retirement> retirement_by_age() const;
  [[nodiscard]] const Item* next_on_this_pool() const;

  RunContext& home_;
  Functions functions_;
  Pool pool_;
  Job* job_ = nullptr;
  std::int64_t seq_ = 0;  // of the case that runs
  int cases_ = 0;         // number of cases that the pool has run
};

}  // namespace cp_pool
