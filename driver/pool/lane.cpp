#include "driver/pool/lane.h"

#include <utility>

#include <fmt/format.h>

#include "driver/pool/fleet_client.h"

namespace cp_pool {

namespace {

constexpr int kMaxLost = 2;  // a case whose pool dies before the case has started is sent once more

}  // namespace

Lane::Lane(RunContext& home, RankStart start, PoolId id, int world_size, PoolPlace place, Functions functions)
    : home_(home),
      functions_(std::move(functions)),
      pool_(home, start, std::move(id), world_size, std::move(place), [this] { return begin_job(); }) {}

void Lane::send(Job& job) {
  job_ = &job;
  pool_.wake();
}

asio::awaitable<void> Lane::serve() {
  Retirement retirement = co_await live();
  functions_.ends();
  if (home_.history) home_.history->close(pool_.id());
  co_await pool_.retire(std::move(retirement));
}

asio::awaitable<Retirement> Lane::live() {
  for (;;) {
    PoolMachine::Finished finished = co_await pool_.next();
    if (auto* const failure = std::get_if<StartFailure>(&finished)) {
      if (failure->retirement.reason == RetireReason::start_failed) functions_.cannot_start(*failure);
      co_return std::move(failure->retirement);
    }
    if (auto* const retirement = std::get_if<Retirement>(&finished)) {
      if (job_ != nullptr) functions_.case_returned();
      co_return std::move(*retirement);
    }
    if (auto* const attempt = std::get_if<Attempt>(&finished)) {
      if (auto retirement = end_job(std::move(*attempt))) co_return *std::move(retirement);
    } else {
      functions_.ready();
    }
  }
}

// Emits that the current case begins, and returns it to the pool.
std::optional<Pool::Next> Lane::begin_job() {
  if (job_ == nullptr) return std::nullopt;
  Job& job = *job_;
  RunContext& run = job.client->run;
  seq_ = ++run.host.last_seq;
  CaseStarted started{job.index, job.named->id, seq_, pool_.id(), ++job.attempts};
  started.number = job.named->number;
  if (started.number) started.payload = job.named->payload;
  run.emit(started);
  const Item* const next = next_on_this_pool();
  if (run.history) {
    run.history->add(
        pool_.id(),
        {.named = *job.named, .next = next == nullptr ? std::nullopt : std::optional(*next), .seq = seq_, .lines = {}});
  }
  return Pool::Next{&run, job.named, std::move(started), next};
}

// Returns why the pool cannot be used any more; nullopt if it can.
std::optional<Retirement> Lane::end_job(Attempt result) {
  Job& job = *std::exchange(job_, nullptr);
  RunContext& run = job.client->run;
  if (run.history) run.history->note_lines(pool_.id(), pool_.sent_lines());
  std::optional<Retirement> retirement = std::move(result.retirement);
  if (!result.charged && !result.paused) ++job.lost;
  if (!result.charged && job.lost < kMaxLost) {
    functions_.case_returned();
    return retirement;
  }
  if (!result.charged) result.reason += fmt::format("; before the case had started, {} times", job.lost);
  ++cases_;
  const CaseOutcome outcome = result.outcome;
  if (!retirement) retirement = retirement_by_age();
  const bool again = is_run_again(job, result);
  if (again) {
    job.client->books.note_try(job, pool_, seq_, std::move(result));
  } else {
    job.client->books.finish(job, pool_, seq_, std::move(result));
  }
  home_.host.reap_strangers();
  if (again) {
    functions_.case_tried();
  } else {
    functions_.case_ended(job, outcome);
  }
  return retirement;
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

const Item* Lane::next_on_this_pool() const {
  const int limit = home_.config.pool_max_cases;
  const bool last = limit > 0 && cases_ + 1 >= limit;
  return last ? nullptr : functions_.next();
}

}  // namespace cp_pool
