// One case on a pool, from sending its request to the decision on case and pool.
#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "cases/case_json.h"
#include "driver/figures.h"
#include "driver/pool/case_request.h"
#include "driver/pool/frame_naming.h"
#include "driver/pool/pool.h"
#include "driver/pool/rank_standings.h"
#include "driver/process/machine_clocks.h"

namespace cp_pool {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDrain{200};      // after an exit, for reading what is still in the pipes
constexpr milliseconds kAnswer{50};      // part of it, for a result of a living rank 0 that may be on its way
constexpr milliseconds kFenceWait{250};  // after a result, for the fences in the ranks' stderr
constexpr milliseconds kDeathAfterResult{200};
constexpr milliseconds kStandings{1200};       // a worker answers within 1 s, naming the ranks that have answered
constexpr milliseconds kMayIgnoreCancel{500};  // for a worker that does not list cancel

// Number of sequences; with more the request could exceed kMaxLineBytes.
constexpr std::int64_t kMaxToldLengths = 65536;

nlohmann::json told_lengths(const Case& c) {
  if (c.batch > kMaxToldLengths) return nlohmann::json::object();
  return to_json(resolve_lengths(c));
}

// Makes a result of a protocol_error: a worker that cannot read a request sends no result for it.
protocol::ResultEvent as_result(const protocol::ProtocolErrorEvent& refusal, std::int64_t seq) {
  protocol::ResultEvent out;
  out.seq = seq;
  out.outcome = CaseOutcome::error;
  out.reason = fmt::format("the worker refused the request: {}", refusal.message);
  return out;
}

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

// Whether the worker acts on this optional request: capabilities.requests lists those that it does not ignore.
bool Pool::offers(const char* request) const {
  return lists(capabilities_, "requests", request);
}

// Turns a pass into an error if its own figures contradict it. Then the pool is retired, since its next results cannot
// be trusted either.
std::optional<Retirement> Pool::disbelieve(Outstanding& current, Attempt& attempt) const {
  if (attempt.outcome != CaseOutcome::pass) return std::nullopt;
  const bool promised = capabilities_.value("figures", nlohmann::json()) == true;
  std::string why = refutation_of_pass(*current.result, world_size_, promised);
  if (why.empty()) return std::nullopt;
  correct_checks(*current.result);
  current.result->perf.reset();
  attempt.outcome = CaseOutcome::error;
  attempt.reason = why;
  return Retirement{RetireReason::protocol_break, std::move(why)};
}

// A worker names the files of a case by the ID in the request, which is therefore dump_name if there is one.
void Pool::send_case(const NamedCase& named, const Outstanding& current, std::size_t index, const NamedCase* next) {
  protocol::RunRequest request{.seq = current.seq,
                               .id = named.id,
                               .case_json = case_for_worker(named.c, capabilities_),
                               .lengths = told_lengths(named.c),
                               .timeout_ms = named.timeout.value_or(run_->config.timeout).count(),
                               .options = {.dump_dir = std::nullopt,
                                           .reference_cache = run_->config.reference_cache,
                                           .perf = run_->config.perf,
                                           .bound_factor = run_->config.bound_factor}};
  if (std::string name = run_->output_names.own_name(index); !name.empty()) request.id = std::move(name);
  if (current.asks_why) request.options.diagnosis_ms = diagnosis_time_of(run_->config).count();
  if (named.replay && request.options.perf) request.options.perf->trace_dir.reset();
  if (run_->config.dump_dir && !named.replay) request.options.dump_dir = run_->config.dump_dir->string();
  group_->begin_case(current.seq);
  group_->send(request);
  const bool kept = run_->history.has_value();
  sent_lines_ = kept ? protocol::encode(request) + '\n' : "";
  // No preparation in a run that takes times: running beside a timed step, it would slow the step down.
  if (next != nullptr && offers("prepare") && !run_->config.perf && unknown_to_worker(next->c, capabilities_).empty()) {
    const protocol::PrepareRequest prepare{++host_.last_seq, case_for_worker(next->c, capabilities_),
                                           told_lengths(next->c)};
    group_->send(prepare);
    if (kept) sent_lines_ += protocol::encode(prepare) + '\n';
  }
}

asio::awaitable<Attempt> Pool::run_case(RunContext& run, const NamedCase& named, const CaseStarted& started,
                                        const NamedCase* next) {
  run_ = &run;
  Attempt out = co_await run_case(named, started, next);
  run_ = &home_;
  co_return out;
}

asio::awaitable<Attempt> Pool::run_case(const NamedCase& named, const CaseStarted& started, const NamedCase* next) {
  if (std::string unknown = unknown_to_worker(named.c, capabilities_); !unknown.empty()) {
    Attempt skipped;
    skipped.outcome = CaseOutcome::skip;
    skipped.reason = std::move(unknown);
    co_return skipped;
  }
  Outstanding current;
  current.seq = started.seq;
  current.asks_why = asks_why(named);
  current.baseline_ms = named.baseline_ms;
  current.sent = Clock::now();
  current.timeout = named.timeout.value_or(run_->config.timeout);
  current.own_timeout = named.timeout.has_value();
  current.may_be_tried_again = retries_of(named, run_->config).allow(CaseOutcome::fail, 0);
  current.deadline = current.sent + current.timeout;
  current.progress = ProgressWatch{current.sent, run_->config.slow_after};
  current.status_requests = run_->status_requests;
  idle_ = false;
  const MachineClocks clocks = MachineClocks::now();
  send_case(named, current, started.index, next);

  co_await wait_for_end(current, started);
  if (!ended(current) && run_->stop.abandon_running()) co_await cancel(current);
  const double duration_ms = ms_since(current.sent);
  Attempt attempt;
  if (current.result) {
    idle_ = true;
    attempt = co_await conclude_with_result(current, started);
  } else if (!current.cancelled && (current.protocol_break || lost())) {
    attempt = conclude_lost(current);
  } else if (host_.pausing() && !run_->stop.abandon_running()) {
    attempt = conclude_paused(current);
  } else {
    attempt = co_await conclude_unfinished(current);
  }
  co_await name_frames(*run_, wakeup_, attempt.stderr_tails);
  attempt.duration_ms = duration_ms;
  if (is_failure(attempt.outcome)) {
    // If a rank has exited, the description of the exits says it.
    const std::string silent = group_->any_exited() ? "" : group_->silent_ranks();
    if (!silent.empty()) attempt.reason += "; " + silent;
    attempt.reason += group_->hosts_of_ranks_in(attempt.reason);
    const std::string trouble = clock_trouble(clocks, MachineClocks::now());
    if (!trouble.empty()) attempt.reason += "; " + trouble;
  }
  say_why_undiagnosed(named, attempt);
  if (attempt.diagnosis && named.runs > 1) run_->diagnosed.insert(named.id);
  if (attempt.charged) ++cases_;
  last_result_ = Clock::now();
  co_return attempt;
}

// Whether no result can come any more.
bool Pool::lost() const {
  return group_->any_exited() || group_->stdin_broken() || group_->stdout_closed();
}

bool Pool::ended(const Outstanding& current) const {
  return current.result || current.protocol_break || lost();
}

asio::awaitable<void> Pool::wait_for_end(Outstanding& current, const CaseStarted& started) {
  for (;;) {
    take_messages(current);
    if (current.result || current.protocol_break) co_return;
    if (lost()) co_return co_await drain(current);
    if (run_->stop.abandon_running() || host_.pausing() || Clock::now() >= current.deadline) co_return;
    tell_progress(current, started);
    co_await wakeup_.wait_until(std::min(current.deadline, current.next()));
  }
}

void Pool::tell_progress(Outstanding& current, const CaseStarted& started) {
  tell_where_ranks_stand(current, started);
  const auto due = current.progress.take(Clock::now());
  if (!due) return;
  CaseProgress event = progress_of(current, started);
  event.slow = due->slow;
  run_->emit(std::move(event));
}

CaseProgress Pool::progress_of(const Outstanding& current, const CaseStarted& started) const {
  return {.index = started.index,
          .id = started.id,
          .seq = started.seq,
          .pool = id_,
          .phase = current.progress.phase(),
          .running_ms = ms_since(current.sent),
          .timeout_ms = static_cast<double>(current.timeout.count())};
}

// Asks the worker if somebody wants to know, and emits the answer. Requests that arrive before the answer is there get
// the same answer.
void Pool::tell_where_ranks_stand(Outstanding& current, const CaseStarted& started) {
  const auto now = Clock::now();
  const bool open = current.pong_limit != Clock::time_point::max();
  if (!open) {
    if (current.status_requests == run_->status_requests) return;
    current.ping = ++host_.last_seq;
    current.pong.reset();
    current.pong_limit = now + kStandings;
    group_->send(protocol::PingRequest{current.ping, true});
    return;
  }
  if (!current.pong && now < current.pong_limit) return;
  current.pong_limit = Clock::time_point::max();
  current.status_requests = run_->status_requests;
  CaseProgress event = progress_of(current, started);
  event.ranks = rank_standings(current.pong, world_size_, offers("cancel"));
  if (!event.ranks.empty()) run_->emit(std::move(event));
}

// Called when the run is stopped while the case still runs. If the worker ends the case in order, the report has the
// worker's answer, and the worker can be shut down in order.
asio::awaitable<void> Pool::cancel(Outstanding& current) {
  if (run_->stop.internal_error) co_return;
  current.cancelled = true;
  group_->send(protocol::CancelRequest{current.seq});
  const milliseconds patience =
      offers("cancel") ? run_->config.grace : std::min(run_->config.grace, milliseconds{kMayIgnoreCancel});
  const auto limit = Clock::now() + patience;
  while (!run_->stop.kill_at_once && Clock::now() < limit) {
    take_messages(current);
    if (current.result || current.protocol_break) co_return;
    if (lost()) co_return co_await drain(current);
    co_await wakeup_.wait_until(limit);
  }
}

// Does not wait for the end of a pipe without a limit, since a grandchild may hold the pipe open.
asio::awaitable<void> Pool::drain(Outstanding& current) {
  const auto start = Clock::now();
  for (auto now = start; now < start + kDrain; now = Clock::now()) {
    take_messages(current);
    const bool diagnosing = current.asks_why && current.result && current.result->diagnosing;
    const bool said = diagnosing ? current.diagnosis.has_value() : current.result.has_value();
    const bool answered = said || current.protocol_break || group_->rank0_has_ended();
    const bool settled = group_->any_exited() && group_->drained();
    if (settled && (answered || now >= start + kAnswer)) co_return;
    co_await wakeup_.wait_until(settled ? start + kAnswer : start + kDrain);
  }
  take_messages(current);
}

void Pool::take_messages(Outstanding& current) {
  while (!current.protocol_break) {
    const auto incoming = group_->take();
    if (!incoming) return;
    if (const auto* bad = std::get_if<ProtocolBreak>(&*incoming)) {
      current.protocol_break = bad->detail;
    } else {
      take_event(current, std::get<protocol::Event>(*incoming));
    }
  }
}

void Pool::take_event(Outstanding& current, const protocol::Event& event) {
  const bool waiting = current.seq != 0 && !current.result;
  if (const auto* started = std::get_if<protocol::StartedEvent>(&event)) {
    if (started->seq == current.seq) current.started = true;
  } else if (const auto* progress = std::get_if<protocol::ProgressEvent>(&event)) {
    if (progress->seq == current.seq) current.progress.reach(progress->phase);
  } else if (const auto* result = std::get_if<protocol::ResultEvent>(&event)) {
    if (!waiting || result->seq != current.seq) {
      current.protocol_break = fmt::format("a result for seq {}, which is not outstanding", result->seq);
    } else if (std::string wrong = contradiction_in(*result, world_size_, current.cancelled); !wrong.empty()) {
      current.protocol_break = std::move(wrong);
    } else {
      current.result = *result;
    }
  } else if (const auto* diagnosis = std::get_if<protocol::DiagnosisEvent>(&event)) {
    if (takes_diagnosis(current, *diagnosis)) current.diagnosis = *diagnosis;
  } else if (const auto* pong = std::get_if<protocol::PongEvent>(&event)) {
    if (current.ping != 0 && pong->seq == current.ping) current.pong = *pong;
  } else if (const auto* refusal = std::get_if<protocol::ProtocolErrorEvent>(&event)) {
    const bool of_ping = !refusal->seq && current.ping != 0 && !current.pong;
    const bool ours = !of_ping && refusal->seq.value_or(current.seq) == current.seq;
    if (waiting && ours) current.result = as_result(*refusal, current.seq);
  }
}

asio::awaitable<void> Pool::wait_for_fences() {
  const auto limit = Clock::now() + kFenceWait;
  while (!group_->tails_complete() && Clock::now() < limit) co_await wakeup_.wait_until(limit);
}

// In a run that takes times, a pass without times becomes an error, and a pass that is slower than --max-ratio allows
// becomes a fail.
void Pool::judge_times(Outstanding& current, Attempt& attempt) const {
  if (!run_->config.perf || attempt.outcome != CaseOutcome::pass) return;
  auto& perf = current.result->perf;
  if (!perf || perf->step_ms.median <= 0) {
    attempt.outcome = CaseOutcome::error;
    attempt.reason = fmt::format("the case passed, but the worker gave {} (--mode perf asks for them)",
                                 perf ? "a step of 0 ms instead of times" : "no times");
    perf.reset();
    return;
  }
  if (!run_->config.max_ratio || !current.baseline_ms) return;
  const double ms = perf->step_ms.median;
  const double before = *current.baseline_ms;
  if (ms <= *run_->config.max_ratio * before) return;
  attempt.outcome = CaseOutcome::fail;
  attempt.reason = fmt::format("{:.3f} times as slow as the baseline ({:.3f} ms, was {:.3f} ms; --max-ratio {})",
                               ms / before, ms, before, *run_->config.max_ratio);
}

asio::awaitable<Attempt> Pool::conclude_with_result(Outstanding& current, const CaseStarted& started) {
  Attempt out;
  out.outcome = current.result->outcome;
  out.reason = current.result->reason;
  if (current.cancelled && out.outcome == CaseOutcome::cancelled) blame_end_of_run(out);
  const std::optional<Retirement> disbelieved = disbelieve(current, out);
  judge_times(current, out);
  for (const LostOutput& lost : current.result->lost_outputs) {
    run_->lose_output("--" + lost.output, lost.message);
  }
  const bool needs_tail = out.outcome != CaseOutcome::pass && out.outcome != CaseOutcome::skip;
  const bool diagnosing = current.asks_why && current.result->diagnosing && out.outcome == CaseOutcome::fail;
  if (needs_tail) {
    co_await wait_for_fences();
    out.stderr_tails = group_->tails();
  }
  std::optional<Retirement> of_diagnosis;
  if (diagnosing) of_diagnosis = co_await diagnose(current, started, out);
  take_messages(current);
  out.retirement = disbelieved ? disbelieved : judge(current);
  if (!out.retirement) out.retirement = std::move(of_diagnosis);
  const bool stands = !needs_tail || out.outcome == CaseOutcome::fail;
  if (group_->any_exited() && !stands) {
    out.reason = fmt::format("{}, after the result \"{}\": {}", describe_deaths(), to_string(out.outcome), out.reason);
    out.outcome = CaseOutcome::crash;
  }
  out.result = *std::move(current.result);
  co_return out;
}

// Returns why the pool must be retired after a case that has a result; nullopt: it need not be.
std::optional<Retirement> Pool::judge(const Outstanding& current) {
  if (group_->any_exited()) return Retirement{RetireReason::died_after_result, describe_deaths()};
  if (current.protocol_break) return Retirement{RetireReason::protocol_break, *current.protocol_break};
  if (!current.result->healthy) {
    return Retirement{RetireReason::unhealthy, current.result->reason};
  }
  if (const auto growth = growth_past_limit(*current.result)) return Retirement{RetireReason::hygiene, *growth};
  return std::nullopt;
}

std::optional<std::string> Pool::growth_past_limit(const protocol::ResultEvent& result) {
  const auto grown = [](std::int64_t before, std::int64_t now, std::int64_t limit) {
    return limit > 0 && now - before > limit;
  };
  const HygieneLimits& limits = run_->config.hygiene;
  for (const protocol::Hygiene& now : result.hygiene) {
    const protocol::Hygiene& before = first_hygiene_.emplace(now.rank, now).first->second;
    const auto say = [&](std::string_view what, std::int64_t from, std::int64_t to) {
      return fmt::format("rank {}: {} grew from {} to {} since the pool's first case", now.rank, what, from, to);
    };
    if (grown(before.rss_kib, now.rss_kib, limits.rss_kib)) return say("resident KiB", before.rss_kib, now.rss_kib);
    if (grown(before.fds, now.fds, limits.fds)) return say("open descriptors", before.fds, now.fds);
    if (grown(before.threads, now.threads, limits.threads)) return say("threads", before.threads, now.threads);
  }
  return std::nullopt;
}

// If the pool died right after its last result and before it started the next case, the last case is taken for the
// cause.
RetireReason Pool::reason_of_death(const Outstanding& current) const {
  const bool after_result = cases_ > 0 && !current.started && Clock::now() - last_result_ < kDeathAfterResult;
  return after_result ? RetireReason::died_after_result : RetireReason::crash;
}

// The attempt of a case whose pool was lost before there was a result.
Attempt Pool::conclude_lost(const Outstanding& current) {
  Attempt out;
  out.charged = current.started;
  out.outcome = CaseOutcome::crash;
  if (group_->any_exited()) {
    out.retirement = {reason_of_death(current), describe_deaths()};
  } else if (current.protocol_break) {
    out.retirement = {RetireReason::protocol_break, *current.protocol_break};
  } else if (group_->stdin_broken()) {
    out.retirement = {RetireReason::stdin_broken, "rank 0 closed its stdin"};
  } else {
    out.retirement = {RetireReason::protocol_break, "rank 0 closed its stdout"};
  }
  out.reason = out.retirement->detail;
  if (!current.progress.phase().empty()) out.reason += fmt::format(" (in {})", current.progress.phase());
  out.stderr_tails = group_->tails();
  return out;
}

// The attempt of a case that was running when the run was paused. It is run again.
Attempt Pool::conclude_paused(const Outstanding& current) {
  Attempt out;
  out.charged = false;
  out.paused = true;
  out.retirement = {
      RetireReason::paused,
      fmt::format("the run was paused while a case ran{}",
                  current.progress.phase().empty() ? "" : fmt::format(" (in {})", current.progress.phase()))};
  return out;
}

// The ranks of our worker answer SIGUSR2 with a stack trace on stderr, which becomes part of the case's tail. A worker
// that does not handle the signal dies of it; it would be killed a moment later anyway.
asio::awaitable<void> Pool::ask_for_stacks() {
  group_->reopen_tails();
  group_->ask_for_stacks();
  const auto limit = Clock::now() + run_->config.stack_wait;
  while (!group_->all_exited() && !run_->stop.cancels() && Clock::now() < limit) co_await wakeup_.wait_until(limit);
}

// Sets outcome and reason of a case that was still running when the run was stopped.
void Pool::blame_end_of_run(Attempt& attempt) const {
  const bool out_of_time = !run_->stop.cancels();
  attempt.outcome = out_of_time ? CaseOutcome::timeout : CaseOutcome::cancelled;
  attempt.reason = out_of_time ? fmt::format("still running at the end of the run's {} ms (--global-timeout)",
                                             run_->config.global_timeout.count())
                               : run_->stop.why_cancelled();
}

// The attempt of a case that is still running when the run is stopped or the deadline is reached.
asio::awaitable<Attempt> Pool::conclude_unfinished(const Outstanding& current) {
  Attempt out;
  if (run_->stop.cancels()) {
    blame_end_of_run(out);
    out.retirement = {RetireReason::interrupted, out.reason, run_->stop.kill_at_once};
    // Some workers die when they are asked to cancel a case.
    if (group_->any_exited()) out.retirement->detail += fmt::format("; {}", describe_deaths());
    out.stderr_tails = group_->tails();
    co_return out;
  }
  if (run_->stop.global_timeout) {
    blame_end_of_run(out);
  } else {
    out.outcome = CaseOutcome::timeout;
    out.reason = fmt::format("no result within {} ms ({})", current.timeout.count(),
                             current.own_timeout ? "the deadline of this case" : "--timeout");
  }
  // If the case has started, its request has been read; bytes left in the pipe are then those of the request to
  // prepare.
  const bool unread = !current.started && group_->stdin_pending();
  if (!current.started) out.reason += unread ? "; rank 0 has not read its request" : "; the case never started";
  if (!current.progress.phase().empty()) out.reason += fmt::format("; the last phase was {}", current.progress.phase());
  out.reason += describe_misplaced_sentinel();
  out.retirement = {unread ? RetireReason::stdin_broken : RetireReason::timeout, out.reason};
  co_await ask_for_stacks();
  out.stderr_tails = group_->tails();
  co_return out;
}

}  // namespace cp_pool
