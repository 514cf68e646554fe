#include "driver/pool/lane.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cp_pool {

namespace {

constexpr int kMaxLost = 2;  // a case whose pool dies before it has started is sent once more

}  // namespace

Lane::Lane(RunContext& run, Ledger& ledger, Slots& slots, int world_size,
           std::function<void(const CaseFinished&)> on_finished)
    : run_(run),
      ledger_(ledger),
      slots_(slots),
      world_size_(world_size),
      on_finished_(std::move(on_finished)),
      key_(fmt::format("{}/{}", run.config.device, world_size)),
      wakeup_(run.io) {
  run_.wakeups.push_back(&wakeup_);
}

Lane::~Lane() {
  std::erase(run_.wakeups, &wakeup_);
}

void Lane::add(Job job) {
  jobs_.push_back(job);
  wakeup_.notify();
}

void Lane::no_more_jobs() {
  closed_ = true;
  wakeup_.notify();
}

asio::awaitable<void> Lane::serve() {
  const bool has_slots = co_await take_slots();
  while (const auto job = co_await next_job()) co_await run_job(*job);
  if (has_slots) slots_.give_back(world_size_);
  // Named, here and elsewhere: g++ 12 destroys an aggregate temporary in a co_await expression twice.
  Retirement retirement;
  if (run_.stop.abandon_running()) retirement.reason = RetireReason::interrupted;
  if (pool_) co_await retire(std::move(retirement));
}

// False: the run was stopped meanwhile.
asio::awaitable<bool> Lane::take_slots() {
  slots_.enqueue(world_size_, wakeup_);
  while (!slots_.try_take(wakeup_)) {
    if (run_.stop.no_new_cases()) {
      slots_.leave_line(wakeup_);
      co_return false;
    }
    co_await wakeup_.wait();
  }
  co_return true;
}

asio::awaitable<std::optional<Lane::Job>> Lane::next_job() {
  for (;;) {
    if (!jobs_.empty()) {
      const Job job = jobs_.front();
      jobs_.pop_front();
      co_return job;
    }
    if (closed_) co_return std::nullopt;
    // A retirement waits too, and may have used up the notification of a new job.
    if (!co_await retire_if_lost()) co_await wakeup_.wait();
  }
}

asio::awaitable<void> Lane::run_job(const Job& job) {
  int lost = 0;  // pools, before the case had started
  for (int attempt = 1;; ++attempt) {
    if (!co_await ensure_pool()) {
      const bool stopped = run_.stop.no_new_cases();
      CaseFinished finished = never_run(job, stopped ? CaseOutcome::not_run : given_up_outcome_,
                                        stopped ? why_stopped() : given_up_.value_or(""));
      if (!stopped) finished.stderr_tails = last_start_tails_;
      finished.attempts = attempt - 1;
      co_return finish(job, std::move(finished));
    }
    const std::int64_t seq = ++run_.last_seq;
    CaseStarted started{job.index, job.named->id, seq, pool_->id(), attempt};
    started.number = job.named->number;
    if (started.number) started.c = job.named->c;
    run_.emit(started);
    Attempt result = co_await pool_->run_case(*job.named, started, next_on_this_pool());
    std::optional<Retirement> retirement = std::move(result.retirement);
    if (!result.charged && !result.paused) ++lost;
    if (result.charged || lost == kMaxLost) {
      if (!result.charged) result.reason += fmt::format("; before the case had started, {} times", lost);
      note_outcome(result.outcome);
      if (!retirement) retirement = retirement_by_age();
      const bool counted = result.counted;
      CaseFinished finished = report(job, std::move(result), seq, attempt);
      judge_bits(finished);
      finish(job, std::move(finished), counted);
      run_.reap_strangers();
      if (retirement) co_await retire(*std::move(retirement));
      co_return;
    }
    co_await retire(*std::move(retirement));
  }
}

// False: there is no pool, because the run was stopped or the key has been given up.
asio::awaitable<bool> Lane::ensure_pool() {
  co_await retire_if_lost();
  while (!pool_) {
    if (run_.stop.no_new_cases() || given_up_) co_return false;
    pool_.emplace(run_, PoolId{key_, ++generation_}, world_size_, wakeup_);
    auto failure = co_await pool_->start();
    if (!failure) {
      failed_starts_ = 0;
      last_start_tails_.clear();
      break;
    }
    const Retirement retirement = failure->retirement;
    if (retirement.reason == RetireReason::start_failed) note_start_failure(*std::move(failure));
    co_await retire(retirement);
  }
  co_return !run_.stop.no_new_cases() && !given_up_;
}

// Whether time has passed, because the pool was retired, or was asked whether it still answers.
asio::awaitable<bool> Lane::retire_if_lost() {
  if (!pool_) co_return false;
  std::optional<Retirement> retirement;
  const bool asked = pool_->unproven();
  if (asked) retirement = co_await pool_->prove();
  if (!retirement) retirement = co_await pool_->check_idle();
  if (!retirement) co_return asked;
  co_await retire(*std::move(retirement));
  co_return true;
}

asio::awaitable<void> Lane::retire(Retirement retirement) {
  co_await pool_->retire(std::move(retirement));
  pool_.reset();
  cases_on_pool_ = 0;
}

void Lane::note_start_failure(StartFailure failure) {
  ++failed_starts_;
  last_start_tails_ = std::move(failure.stderr_tails);
  if (failure.skip) {
    given_up_ = failure.retirement.detail;
    given_up_outcome_ = CaseOutcome::skip;
  } else if (failure.permanent || run_.config.max_failed_starts == 1) {
    given_up_ = fmt::format("the pool cannot start: {}", failure.retirement.detail);
  } else if (failed_starts_ == run_.config.max_failed_starts) {
    given_up_ = fmt::format("the pool failed to start {} times running: {}", failed_starts_, failure.retirement.detail);
  }
}

void Lane::note_outcome(CaseOutcome outcome) {
  ++cases_on_pool_;
  timeouts_ = outcome == CaseOutcome::timeout ? timeouts_ + 1 : 0;
  const int limit = run_.config.max_consecutive_timeouts;
  if (limit > 0 && timeouts_ >= limit && !given_up_) {
    given_up_ = fmt::format("{} cases running timed out (--max-consecutive-timeouts)", timeouts_);
  }
}

std::optional<Retirement> Lane::retirement_by_age() const {
  const int limit = run_.config.pool_max_cases;
  if (limit <= 0 || cases_on_pool_ < limit) return std::nullopt;
  return Retirement{RetireReason::max_cases, fmt::format("it ran {} cases (--pool-max-cases)", cases_on_pool_)};
}

const NamedCase* Lane::next_on_this_pool() const {
  const int limit = run_.config.pool_max_cases;
  const bool last = limit > 0 && cases_on_pool_ + 1 >= limit;
  return jobs_.empty() || last ? nullptr : jobs_.front().named;
}

// A case that runs again has to give the bits of its first run, unless its kernels do not promise them.
void Lane::judge_bits(CaseFinished& finished) {
  if (!run_.config.compare_runs || finished.outcome != CaseOutcome::pass) return;
  finished.other_bits = run_.output_bits.other_ranks(finished);
  if (!finished.other_bits || finished.other_bits->empty() || !promises_bits(finished)) return;
  finished.outcome = CaseOutcome::fail;
  finished.reason = fmt::format("its outputs have other bits than those of its first run in this one, on rank {}",
                                fmt::join(*finished.other_bits, ", "));
}

void Lane::finish(const Job& job, CaseFinished finished, bool counted) {
  const CaseOutcome outcome = finished.outcome;
  ledger_.record(job.index, outcome);
  const Event event{std::move(finished)};
  run_.emit(event);
  if (is_failure(outcome) && !counted) run_.count_failure();
  if (on_finished_) on_finished_(std::get<CaseFinished>(event));
}

CaseFinished Lane::report(const Job& job, Attempt attempt, std::int64_t seq, int attempts) const {
  CaseFinished out = never_run(job, attempt.outcome, std::move(attempt.reason));
  out.seq = seq;
  out.pool = pool_->id();
  out.attempts = attempts;
  out.duration_ms = attempt.duration_ms;
  out.ranks = std::move(attempt.result.ranks);
  out.checks = std::move(attempt.result.checks);
  out.timings_ms = std::move(attempt.result.timings_ms);
  out.hygiene = std::move(attempt.result.hygiene);
  out.backend = std::move(attempt.result.backend);
  out.backend_note = std::move(attempt.result.backend_note);
  if (attempt.result.bound_factor != 1) out.bound_factor = attempt.result.bound_factor;
  if (const auto& perf = attempt.result.perf) {
    out.perf = perf_figures(out.c, *perf);
    out.perf->baseline_ms = job.named->baseline_ms;
  }
  out.diagnosis = std::move(attempt.diagnosis);
  out.shared_gpus = pool_->shared_gpus();
  out.stderr_tails = std::move(attempt.stderr_tails);
  return out;
}

CaseFinished Lane::never_run(const Job& job, CaseOutcome outcome, std::string reason) const {
  CaseFinished out;
  out.index = job.index;
  out.id = job.named->id;
  out.number = job.named->number;
  out.run = job.named->run;
  out.runs = job.named->runs;
  out.search = job.named->search;
  out.c = job.named->c;
  out.outcome = outcome;
  out.reason = std::move(reason);
  out.rerun = job.named->rerun;
  return out;
}

std::string Lane::why_stopped() const {
  if (run_.stop.interrupted) return "the run was interrupted";
  if (run_.stop.internal_error) return "the driver had an internal error";
  if (run_.stop.global_timeout) {
    return fmt::format("the run's {} ms were over (--global-timeout)", run_.config.global_timeout.count());
  }
  return fmt::format("not run after {} {} (--max-fail)", run_.config.max_failures,
                     run_.config.max_failures == 1 ? "failure" : "failures");
}

}  // namespace cp_pool
