#include "driver/pool/lane.h"

#include <fmt/format.h>

namespace cp_pool {

namespace {

constexpr int kMaxLost = 2;  // a case whose pool dies before it has started is sent once more

}  // namespace

Lane::Lane(RunContext& run, Books& books, PoolKey& key, std::vector<std::pair<std::string, std::string>> variables,
           Functions functions)
    : run_(run),
      books_(books),
      key_(key),
      functions_(std::move(functions)),
      wakeup_(run.io),
      pool_(run, key.next_id(), key.world_size(), std::move(variables), wakeup_) {
  run_.wakeups.push_back(&wakeup_);
}

Lane::~Lane() {
  std::erase(run_.wakeups, &wakeup_);
}

void Lane::send(Job& job) {
  job_ = &job;
  wakeup_.notify();
}

void Lane::retire() {
  retired_ = true;
  pool_.give_up_start();
  wakeup_.notify();
}

asio::awaitable<void> Lane::serve() {
  Retirement retirement = co_await live();
  functions_.ends();
  co_await pool_.retire(std::move(retirement));
}

asio::awaitable<Retirement> Lane::live() {
  auto failure = co_await pool_.start();
  if (failure) {
    Retirement retirement = failure->retirement;
    if (retirement.reason == RetireReason::start_failed) key_.note_failed_start(*std::move(failure));
    co_return retirement;
  }
  key_.note_start();
  functions_.ready();
  while (!retired_) {
    if (auto lost = co_await lost_while_idle()) {
      if (job_ != nullptr) functions_.case_returned();
      co_return *std::move(lost);
    }
    if (job_ != nullptr) {
      if (auto retirement = co_await run_job()) co_return *std::move(retirement);
    } else if (!retired_) {
      co_await wakeup_.wait();
    }
  }
  Retirement retirement;
  if (run_.stop.abandon_running()) retirement.reason = RetireReason::interrupted;
  co_return retirement;
}

asio::awaitable<std::optional<Retirement>> Lane::lost_while_idle() {
  std::optional<Retirement> lost;
  if (pool_.unproven()) lost = co_await pool_.prove();
  if (!lost) lost = co_await pool_.check_idle();
  co_return lost;
}

// Returns why the pool cannot be used any more.
asio::awaitable<std::optional<Retirement>> Lane::run_job() {
  Job& job = *job_;
  const std::int64_t seq = ++run_.last_seq;
  CaseStarted started{job.index, job.named->id, seq, pool_.id(), ++job.attempts};
  started.number = job.named->number;
  if (started.number) started.c = job.named->c;
  run_.emit(started);
  Attempt result = co_await pool_.run_case(*job.named, started, next_on_this_pool());
  std::optional<Retirement> retirement = std::move(result.retirement);
  if (!result.charged && !result.paused) ++job.lost;
  if (!result.charged && job.lost < kMaxLost) {
    job_ = nullptr;
    functions_.case_returned();
    co_return retirement;
  }
  if (!result.charged) result.reason += fmt::format("; before the case had started, {} times", job.lost);
  ++cases_;
  key_.note_outcome(result.outcome);
  if (!retirement) retirement = retirement_by_age();
  books_.finish(job, pool_, seq, std::move(result));
  run_.reap_strangers();
  job_ = nullptr;
  functions_.case_ended(job.index);
  co_return retirement;
}

std::optional<Retirement> Lane::retirement_by_age() const {
  const int limit = run_.config.pool_max_cases;
  if (limit <= 0 || cases_ < limit) return std::nullopt;
  return Retirement{RetireReason::max_cases, fmt::format("it ran {} cases (--pool-max-cases)", cases_)};
}

const NamedCase* Lane::next_on_this_pool() const {
  const int limit = run_.config.pool_max_cases;
  const bool last = limit > 0 && cases_ + 1 >= limit;
  return last ? nullptr : functions_.next();
}

}  // namespace cp_pool
