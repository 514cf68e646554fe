#include "driver/pool/lane.h"

#include <fmt/format.h>

#include "driver/pool/fleet_client.h"

namespace cp_pool {

namespace {

constexpr int kMaxLost = 2;  // a case whose pool dies before the case has started is sent once more

}  // namespace

Lane::Lane(RunContext& home, RankStart start, PoolId id, int world_size, PoolPlace place, Functions functions)
    : home_(home),
      functions_(std::move(functions)),
      wakeup_(home.host.io),
      pool_(home, start, std::move(id), world_size, std::move(place), wakeup_) {
  home_.host.wakeups.push_back(&wakeup_);
}

Lane::~Lane() {
  std::erase(home_.host.wakeups, &wakeup_);
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
  if (home_.history) home_.history->close(pool_.id());
  co_await pool_.retire(std::move(retirement));
}

asio::awaitable<Retirement> Lane::live() {
  auto failure = co_await pool_.start();
  if (failure) {
    if (failure->retirement.reason == RetireReason::start_failed) functions_.cannot_start(*failure);
    co_return failure->retirement;
  }
  functions_.ready();
  while (!retired_) {
    if (auto lost = co_await pool_.check_idle()) {
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
  if (home_.stop.abandon_running()) retirement.reason = RetireReason::interrupted;
  co_return retirement;
}

// Runs the current case. Returns why the pool cannot be used any more; nullopt if it can.
asio::awaitable<std::optional<Retirement>> Lane::run_job() {
  Job& job = *job_;
  RunContext& run = job.client->run;
  const std::int64_t seq = ++run.host.last_seq;
  CaseStarted started{job.index, job.named->id, seq, pool_.id(), ++job.attempts};
  started.number = job.named->number;
  if (started.number) started.c = job.named->c;
  run.emit(started);
  const NamedCase* const next = next_on_this_pool();
  if (run.history) {
    run.history->add(
        pool_.id(),
        {.named = *job.named, .next = next == nullptr ? std::nullopt : std::optional(*next), .seq = seq, .lines = {}});
  }
  Attempt result = co_await pool_.run_case(run, *job.named, started, next);
  if (run.history) run.history->note_lines(pool_.id(), pool_.sent_lines());
  std::optional<Retirement> retirement = std::move(result.retirement);
  if (!result.charged && !result.paused) ++job.lost;
  if (!result.charged && job.lost < kMaxLost) {
    job_ = nullptr;
    functions_.case_returned();
    co_return retirement;
  }
  if (!result.charged) result.reason += fmt::format("; before the case had started, {} times", job.lost);
  ++cases_;
  const CaseOutcome outcome = result.outcome;
  if (!retirement) retirement = retirement_by_age();
  if (is_run_again(job, result)) {
    job.client->books.note_try(job, pool_, seq, std::move(result));
    home_.host.reap_strangers();
    job_ = nullptr;
    functions_.case_tried();
    co_return retirement;
  }
  job.client->books.finish(job, pool_, seq, std::move(result));
  home_.host.reap_strangers();
  job_ = nullptr;
  functions_.case_ended(job, outcome);
  co_return retirement;
}

bool Lane::is_run_again(const Job& job, const Attempt& attempt) {
  const RunContext& run = job.client->run;
  if (is_to_fail(job.named->expected) && is_failure(attempt.outcome)) return false;
  return retries_of(*job.named, run.config).allow(attempt.outcome, job.tried) && !run.stop.no_new_cases();
}

std::optional<Retirement> Lane::retirement_by_age() const {
  const int limit = home_.config.pool_max_cases;
  if (limit <= 0 || cases_ < limit) return std::nullopt;
  return Retirement{RetireReason::max_cases, fmt::format("it ran {} cases (--pool-max-cases)", cases_)};
}

const NamedCase* Lane::next_on_this_pool() const {
  const int limit = home_.config.pool_max_cases;
  const bool last = limit > 0 && cases_ + 1 >= limit;
  return last ? nullptr : functions_.next();
}

}  // namespace cp_pool
