// The coroutine of one pool, from its start to its end: runs the cases that the fleet sends it, one after another, and
// says when the pool can take the next, and when it is of no more use.
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
#include "driver/pool/wakeup.h"
#include "driver/run.h"

namespace cp_pool {

class Lane {
 public:
  // What the lane tells; none of them may end it.
  struct Functions {
    std::function<void()> ready;  // it can take a case
    std::function<void(const StartFailure& failure)> cannot_start;
    std::function<void(const Job& job, CaseOutcome outcome)> case_ended;  // it is in the books, and the job may go
    std::function<void()> case_returned;                                  // it had not started: it has to be run again
    std::function<void()> case_tried;  // it is to be run once more, here or elsewhere
    std::function<void()> ends;        // the pool takes no further case
    // The case that this pool is to run after the one that it runs; nullptr if none is known.
    std::function<const NamedCase*()> next;
  };

  // All but the functions: as of the Pool.
  Lane(RunContext& home, RankStart start, PoolId id, int world_size, PoolPlace place, Functions functions);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane();  // kills a pool that serve() has left behind when it threw

  // Returns when the pool is gone. What a sink throws comes out here.
  asio::awaitable<void> serve();

  // Lets the pool, which has no case, run this one. The job must stay alive until it has ended or has come back.
  void send(Job& job);
  // Ends the pool, which has no case; or gives up its start.
  void retire();

  [[nodiscard]] const Pool& pool() const { return pool_; }

 private:
  asio::awaitable<Retirement> live();
  asio::awaitable<std::optional<Retirement>> lost_while_idle();
  asio::awaitable<std::optional<Retirement>> run_job();
  [[nodiscard]] static bool is_run_again(const Job& job, const Attempt& attempt);
  [[nodiscard]] std::optional<Retirement> retirement_by_age() const;
  [[nodiscard]] const NamedCase* next_on_this_pool() const;

  RunContext& home_;
  Functions functions_;
  Wakeup wakeup_;
  Pool pool_;
  Job* job_ = nullptr;
  bool retired_ = false;  // by the fleet
  int cases_ = 0;         // that the pool has run
};

}  // namespace cp_pool
