// The coroutine of each pool, from its start to its end: it runs the cases that the fleet sends, one after another.
#include <utility>

#include <fmt/format.h>

#include "driver/pool/fleet.h"

namespace cp_pool {

namespace {

constexpr int kMaxLost = 2;  // a case whose pool dies before the case has started is sent once more

bool is_run_again(const Job& job, const Conclusion& conclusion) {
  const RunContext& run = job.client->run;
  if (is_to_fail(job.named.expected) && is_failure(conclusion.outcome)) return false;
  return retries_of(job.named, run.config).allow(conclusion.outcome, job.tried) && !run.stop.no_new_cases();
}

// Whether the pool has run as many cases as it may when it has run `more` more.
bool is_old(const Fleet::LivingPool& living, int more) {
  const int limit = living.home->config.pool_max_cases;
  return limit > 0 && living.cases + more >= limit;
}

}  // namespace

// Returns when the pool is gone. Rethrows an exception of a sink.
asio::awaitable<void> Fleet::serve(int number) {
  LivingPool& living = pools_.at(number);
  Retirement retirement = co_await live(number, living);
  set_state(living, PoolState::ending);
  scheduler_.pool_ends(number);
  decide_soon();
  if (living.home->history) living.home->history->close(living.pool->id());
  co_await living.pool->retire(std::move(retirement));
}

asio::awaitable<Retirement> Fleet::live(int number, LivingPool& living) {
  for (;;) {
    PoolMachine::Finished finished = co_await living.pool->next();
    if (auto* const failure = std::get_if<StartFailure>(&finished)) {
      if (failure->retirement.reason == RetireReason::start_failed) {
        for_each_backoff(living.key, [&](StartBackoff& backoff) { backoff.note_failed_start(*failure); });
      }
      co_return std::move(failure->retirement);
    }
    if (auto* const retirement = std::get_if<Retirement>(&finished)) {
      if (std::exchange(living.sent, std::nullopt)) scheduler_.case_returned(number);
      co_return std::move(*retirement);
    }
    if (auto* const conclusion = std::get_if<Conclusion>(&finished)) {
      if (auto retirement = end_case(number, living, std::move(*conclusion))) co_return *std::move(retirement);
    } else {
      for_each_backoff(living.key, [](StartBackoff& backoff) { backoff.note_start(); });
      set_state(living, PoolState::idle);
      scheduler_.pool_ready(number, now());
      decide_soon();
    }
  }
}

// Emits that the case that was sent begins, and returns it to the pool.
std::optional<Pool::Next> Fleet::begin_case(int number) {
  LivingPool& living = pools_.at(number);
  if (!living.sent) return std::nullopt;
  Job& job = jobs_.at(*living.sent);
  RunContext& run = job.client->run;
  const PoolId& id = living.pool->id();
  living.seq = ++host_.last_seq;
  CaseStarted started{job.index, job.named.id, living.seq, id, ++job.attempts};
  started.number = job.named.number;
  if (started.number) started.payload = job.named.payload;
  run.emit(started);
  const Item* const next = is_old(living, 1) ? nullptr : next_of(number);
  if (run.history) {
    run.history->add(
        id, {.named = job.named, .next = next == nullptr ? std::nullopt : std::optional(*next), .seq = living.seq});
  }
  return Pool::Next{&run, &job.named, std::move(started), next};
}

// Returns why the pool cannot be used any more; nullopt if it can.
std::optional<Retirement> Fleet::end_case(int number, LivingPool& living, Conclusion conclusion) {
  Job& job = jobs_.at(*living.sent);
  FleetClient& client = *job.client;
  if (client.run.history) client.run.history->note_lines(living.pool->id(), living.pool->sent_lines());
  std::optional<Retirement> retirement = std::move(conclusion.retirement);
  if (!conclusion.charged && retirement->reason != RetireReason::paused) ++job.lost;
  if (!conclusion.charged && job.lost < kMaxLost) {
    living.sent.reset();
    scheduler_.case_returned(number);
    return retirement;
  }
  if (!conclusion.charged) conclusion.reason += fmt::format("; before the case had started, {} times", job.lost);
  ++living.cases;
  if (!retirement && is_old(living, 0)) {
    retirement = {RetireReason::max_cases, fmt::format("it ran {} cases (--pool-max-cases)", living.cases)};
  }
  const bool again = is_run_again(job, conclusion);
  const bool counted = conclusion.counted;
  CaseFinished end = client.ended_on(job, *living.pool, living.seq, std::move(conclusion));
  const CaseOutcome outcome = end.outcome;
  if (again) {
    client.note_try(job, std::move(end));
  } else {
    client.finish(job, std::move(end), counted);
  }
  host_.reap_strangers();
  const std::size_t sent = *std::exchange(living.sent, std::nullopt);
  set_state(living, PoolState::idle);
  decide_soon();
  if (again) {
    scheduler_.case_tried(number, now());
    return retirement;
  }
  client.backoff.at(job.key).note_outcome(outcome);
  jobs_.erase(sent);
  scheduler_.case_ended(number, now());
  client.count_finished();
  return retirement;
}

void Fleet::set_state(LivingPool& living, PoolState state) {
  living.state = state;
  living.since = Clock::now();
}

template <typename Note>
void Fleet::for_each_backoff(int key, const Note& note) {
  for (const auto& [number, client] : clients_) {
    if (const auto backoff = client->backoff.find(key); backoff != client->backoff.end()) note(backoff->second);
  }
}

const Item* Fleet::next_of(int number) const {
  const auto next = scheduler_.next_of(number);
  return next ? &jobs_.at(*next).named : nullptr;
}

void Fleet::forget(int number, const std::exception_ptr& error) {
  // If the pool still has a case, an exception has ended it.
  if (const auto sent = pools_.at(number).sent) jobs_.erase(*sent);
  pools_.erase(number);
  scheduler_.pool_gone(number);
  owner_.gone(number);
  decide_soon();
  if (error) on_error(error);
}

}  // namespace cp_pool
