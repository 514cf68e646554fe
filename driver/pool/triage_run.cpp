// Carries out what driver/triage/ decides, one replay at a time, each on a pool of its own.
#include <algorithm>

#include <fmt/format.h>

#include "driver/core/failure_kind.h"
#include "driver/core/mapped.h"
#include "driver/pool/runner.h"
#include "driver/triage/case_triage.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

FailureToTriage to_triage(const HistoryOfFailure& failure, std::span<const SentCase> sent) {
  const CaseFinished& event = failure.event;
  FailureToTriage out;
  out.end = {.outcome = event.outcome,
             .reason = std::string(protocol::first_line(event.reason)),
             .machine = machine_sign(event)};
  for (const SentCase& before : sent.first(failure.place)) out.history.push_back(before.named.id);
  FailureSignature kind = failure_signature(event);
  out.kind = fmt::format("{}\n{}", kind.how, kind.origin);
  out.ms = event.duration_ms;
  if (event.other_bits && !event.other_bits->empty()) {
    out.unfit =
        "the case failed because its output had different bits than in its first run, and a replay does not compare "
        "bits";
  }
  return out;
}

class TriageRun {
 public:
  TriageRun(RunContext& run, Fleet& fleet, StartOfRanks start)
      : run_(run),
        fleet_(fleet),
        start_ranks_(std::move(start)),
        plan_(mapped(run.history->failures(),
                     [&](const auto& failure) { return to_triage(failure, run.history->until(failure)); }),
              run.config.triage_limits),
        start_(Clock::now()) {}

  asio::awaitable<void> serve() {
    while (const auto replay_of = plan_.next(spent())) {
      emit_verdicts();
      std::optional<CaseReplayed> ended = co_await replay(*replay_of);
      while (!ended) {
        co_await run_.host.end_of_pause();
        ended = co_await replay(*replay_of);
      }
      CaseReplayed& replayed = *ended;
      if (run_.stop.abandon_running()) {
        plan_.stop("the run was stopped");
        break;
      }
      if (spent() >= plan_.limits().time && replayed.outcome != CaseOutcome::pass) {
        // The replay may have failed only because the budget ended.
        plan_.stop(fmt::format("the time limit of {} s for a triage was reached", plan_.limits().time.count() / 1000));
        break;
      }
      const CaseEnd end{.outcome = replayed.outcome,
                        .reason = std::string(protocol::first_line(replayed.reason)),
                        .machine = replayed.machine};
      run_.emit(std::move(replayed));
      plan_.ended(end);
    }
    emit_verdicts();
  }

 private:
  // Both return nullopt, or false, if the run was paused meanwhile.
  asio::awaitable<std::optional<CaseReplayed>> replay(const TriagePlan::Replay& replay) {
    const HistoryOfFailure& failure = run_.history->failures().at(replay.failure);
    const std::span<const SentCase> sent = run_.history->until(failure);
    std::vector<const SentCase*> sequence = mapped(replay.before, [&](std::size_t place) { return &sent[place]; });
    sequence.push_back(&sent.back());
    CaseReplayed out;
    out.index = failure.event.index;
    out.id = failure.event.id;
    out.replay = plan_.replays();
    out.before = replay.before.size();
    if (out.before > 0) out.first = sequence.front()->named.id;
    const int ranks = failure.event.payload->ranks();
    const Item& named = sent.back().named;
    const int slots = named.ranks && named.ranks->slots > 0 ? named.ranks->slots : ranks;
    std::optional<Pool::Next> upcoming;
    Pool pool(run_, start_ranks_(named), fleet_.next_pool_id(run_.config, ranks), ranks, fleet_.place_of(ranks, slots),
              [&upcoming] { return std::exchange(upcoming, std::nullopt); });
    out.pool = pool.id();
    Alarm budget(run_.host.io);
    budget.set_at(start_ + plan_.limits().time, [&pool] { pool.give_up(); });
    const PoolMachine::Finished started = co_await pool.next();
    if (const auto* const failure = std::get_if<StartFailure>(&started)) {
      out.outcome = CaseOutcome::infra;
      out.reason = fmt::format("the pool of the replay did not start: {}", failure->retirement.detail);
      co_await pool.retire(failure->retirement);
      if (failure->retirement.reason == RetireReason::paused) co_return std::nullopt;
      co_return out;
    }
    if (!co_await send(pool, upcoming, sequence, out)) co_return std::nullopt;
    co_return out;
  }

  // Sends the cases to the pool, puts the end of the last one into `out`, and retires the pool.
  asio::awaitable<bool> send(Pool& pool, std::optional<Pool::Next>& upcoming, std::span<const SentCase* const> sequence,
                             CaseReplayed& out) {
    Retirement end;
    bool paused = false;
    for (std::size_t i = 0; i < sequence.size(); ++i) {
      const bool last = i + 1 == sequence.size();
      Item named = sequence[i]->named;
      named.replay = true;
      const auto left = std::max(plan_.limits().time - spent(), std::chrono::milliseconds{1});
      named.timeout = std::min(named.timeout.value_or(run_.config.timeout), left);
      const Item* const next = sequence[i]->next ? &*sequence[i]->next : nullptr;
      upcoming = Pool::Next{&run_, &named, {out.index, named.id, ++run_.host.last_seq, pool.id()}, next};
      PoolMachine::Finished finished = co_await pool.next();
      Conclusion conclusion;
      if (auto* const ended = std::get_if<Conclusion>(&finished)) {
        conclusion = std::move(*ended);
      } else {  // the pool was lost before the case was sent
        conclusion.charged = false;
        conclusion.retirement = std::get<Retirement>(finished);
        conclusion.reason = conclusion.retirement->detail;
      }
      run_.host.reap_strangers();
      if (conclusion.retirement) end = *conclusion.retirement;
      paused = !conclusion.charged && end.reason == RetireReason::paused;
      if (last) {
        CaseFinished seen;
        seen.outcome = conclusion.outcome;
        seen.reason = conclusion.reason;
        seen.ranks = std::move(conclusion.result.ranks);
        seen.stderr_tails = std::move(conclusion.stderr_tails);
        out.machine = machine_sign(seen);
        out.outcome = conclusion.charged ? conclusion.outcome : CaseOutcome::infra;
        out.reason = std::move(conclusion.reason);
        out.duration_ms = conclusion.duration_ms;
      } else if (conclusion.retirement) {
        out.outcome = CaseOutcome::infra;
        out.reason =
            fmt::format("the pool ended at case {} of the {} cases that the replay runs before this case, {}: {}",
                        i + 1, sequence.size() - 1, named.id, conclusion.retirement->detail);
      }
      if (conclusion.retirement || run_.stop.abandon_running()) break;
    }
    if (run_.stop.abandon_running()) end.reason = RetireReason::interrupted;
    co_await pool.retire(std::move(end));
    co_return !paused;
  }

  void emit_verdicts() {
    for (const auto& [number, verdict] : plan_.take_verdicts()) {
      const HistoryOfFailure& failure = run_.history->failures().at(number);
      const CaseFinished& failed = failure.event;
      run_.emit(CaseVerdict{
          .index = failed.index, .id = failed.id, .run = failed.run, .runs = failed.runs, .verdict = verdict});
      if (run_.config.capsules) run_.write_capsule(failure, &verdict);
    }
  }

  [[nodiscard]] std::chrono::milliseconds spent() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start_);
  }

  RunContext& run_;
  Fleet& fleet_;
  StartOfRanks start_ranks_;
  TriagePlan plan_;
  Clock::time_point start_;
};

}  // namespace

asio::awaitable<void> triage_failures(RunContext& run, Fleet& fleet, StartOfRanks start) {
  TriageRun triage(run, fleet, std::move(start));
  co_await triage.serve();
}

}  // namespace cp_pool
