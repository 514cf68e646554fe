// The end of a pool. When pool_retired is emitted, no process of the pool is left, or the event names it.
#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "driver/pool/pool.h"

namespace cp_pool {

namespace {

using std::chrono::milliseconds;

// From SIGKILL until gone; a process that is left after it is stuck in the kernel.
constexpr std::chrono::seconds kKillLimit{5};
constexpr milliseconds kBetweenPasses{5};
constexpr int kMaxBlockingPasses = 20;
constexpr int kCleanPasses = 2;  // passes that must find no process, because a process may fork while /proc is read

// Whether the worker is asked to shut down, because the reason is not its fault.
bool is_graceful(RetireReason reason) {
  return reason == RetireReason::finished || reason == RetireReason::max_cases || reason == RetireReason::hygiene ||
         reason == RetireReason::interrupted;
}

// Whether ranks are killed without SIGTERM before: after the loss of a rank the others only wait for it, and whoever
// pauses the run waits for their end.
bool kill_at_once(RetireReason reason) {
  return reason == RetireReason::crash || reason == RetireReason::died_after_result || reason == RetireReason::paused;
}

}  // namespace

// Kills ranks only if an exception ends the run: then there is no time for grace, and nobody to report to.
Pool::~Pool() {
  host_.remove(*this);
  if (!group_) return;
  processes_.find();
  group_->kill();
  for (int clean = 0, passes = 0; clean < kCleanPasses && passes < kMaxBlockingPasses; ++passes) {
    clean = processes_.kill_all() == 0 ? clean + 1 : 0;
  }
}

asio::awaitable<void> Pool::retire(Retirement retirement) {
  std::vector<Leftover> leftovers;
  std::vector<RankExit> exits_by_rank;
  if (group_) {
    processes_.find();  // while parents still live, because a child with another environment is found only through them
    if (idle_ && is_graceful(retirement.reason)) co_await ask_to_shut_down();
    const bool no_grace = kill_at_once(retirement.reason) || retirement.at_once;
    if (!no_grace || !group_->dies_with_its_processes()) co_await terminate();
    co_await kill();
    leftovers = processes_.describe();
    std::ranges::move(group_->unproven(), std::back_inserter(leftovers));
    exits_by_rank = exits();
    forget_group();
  }
  run_->emit(PoolRetired{id_, retirement.reason, std::move(retirement.detail), cases_, std::move(exits_by_rank),
                         std::move(leftovers)});
}

// Called after all ranks have exited.
void Pool::forget_group() {
  for (const int pid : group_->children()) host_.ranks.erase(pid);
  group_->reap();
  group_.reset();
  host_.reap_strangers();
}

asio::awaitable<void> Pool::wait_for_exits(Clock::time_point limit) {
  while (!group_->all_exited() && Clock::now() < limit) co_await wakeup_.wait_until(limit);
}

asio::awaitable<void> Pool::ask_to_shut_down() {
  group_->send(protocol::ShutdownRequest{});
  group_->close_stdin_when_written();
  const auto limit = Clock::now() + run_->config.grace;
  while (!group_->all_exited() && !run_->stop.kill_at_once && Clock::now() < limit) {
    co_await wakeup_.wait_until(limit);
  }
}

asio::awaitable<void> Pool::terminate() {
  if (group_->all_exited()) co_return;
  group_->terminate();
  const auto limit = Clock::now() + run_->config.grace;
  while (!group_->all_exited() && !run_->stop.kill_at_once && Clock::now() < limit) {
    co_await wakeup_.wait_until(limit);
  }
}

asio::awaitable<void> Pool::kill() {
  const auto limit = Clock::now() + kKillLimit;
  group_->kill();
  co_await wait_for_exits(limit);
  for (int clean = 0; clean < kCleanPasses && Clock::now() < limit;) {
    if (processes_.kill_all() == 0) {
      ++clean;
    } else {
      clean = 0;
      co_await wakeup_.wait_until(Clock::now() + kBetweenPasses);
    }
  }
}

std::vector<RankExit> Pool::exits() const {
  std::vector<RankExit> out;
  for (std::size_t rank = 0; rank < group_->ranks().size(); ++rank) {
    const WorkerGroup::Rank& r = group_->ranks()[rank];
    if (r.pid <= 0) continue;  // only the launcher knows this rank's process
    const auto end = std::ranges::find(group_->ends(), static_cast<int>(rank), &WorkerGroup::End::rank);
    std::string status = end != group_->ends().end() ? end->how : "still there after SIGKILL";
    if (r.killed_by_driver) status += ", by the driver";
    out.push_back({static_cast<int>(rank), r.pid, std::move(status), r.host});
  }
  return out;
}

}  // namespace cp_pool
