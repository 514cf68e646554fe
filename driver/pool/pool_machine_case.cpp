// A pool between cases, and one case from its request to the decision on case and pool.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "cases/case_phases.h"
#include "driver/core/figures.h"
#include "driver/core/payload.h"
#include "driver/pool/pool_machine.h"
#include "worker/protocol/diagnosis_intake.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDeathOfPipes{200};
constexpr milliseconds kDrain{200};      // after an exit, for reading what is still in the pipes
constexpr milliseconds kAnswer{50};      // part of it, for a result of a living rank 0 that may be on its way
constexpr milliseconds kFenceWait{250};  // after a result, for the fences in the ranks' stderr
constexpr milliseconds kDeathAfterResult{200};
constexpr milliseconds kStandings{1200};         // a worker answers within 1 s, naming the ranks that have answered
constexpr std::size_t kMostOfDifference = 1000;  // bytes of a worker's text
constexpr milliseconds kMayIgnoreCancel{500};    // for a worker that does not list cancel

double in_ms(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace

// --- Idle ---

void PoolMachine::be_idle() {
  take_messages();
  if (lost() && !any_ended()) {
    // The pipes of a rank that ends close a moment before its exit is seen, and the exit is the better explanation.
    if (state_ == State::idle) enter(State::pipes_closed, now_ + kDeathOfPipes);
    if (!over_time()) return;
  }
  if (auto why = why_idle_ends()) {
    enter(State::over);
    finished_ = *std::move(why);
  } else if (auto what = hands_.take_case()) {
    begin_case(*std::move(what));
  } else if (!facts_.wanted) {
    finished_ =
        Retirement{facts_.stop.abandon_running() ? RetireReason::interrupted : RetireReason::finished, "", false};
  }
}

std::optional<Retirement> PoolMachine::why_idle_ends() {
  if (any_ended()) {
    return Retirement{reason_of_death(), fmt::format("idle, {}{}", describe_deaths(), describe_last_words())};
  }
  if (current_.protocol_break) return Retirement{RetireReason::protocol_break, *current_.protocol_break};
  if (facts_.ranks.stdin_broken) return Retirement{RetireReason::stdin_broken, "idle, rank 0 closed its stdin"};
  if (facts_.ranks.stdout_closed) return Retirement{RetireReason::protocol_break, "idle, rank 0 closed its stdout"};
  if (!facts_.ranks.silent.empty()) return Retirement{RetireReason::crash, "idle, " + facts_.ranks.silent};
  if (facts_.pausing) return Retirement{RetireReason::paused, "the run was paused"};
  return std::nullopt;
}

// --- The request ---

// Whether the worker acts on this optional request: capabilities.requests lists those that it does not ignore.
bool PoolMachine::offers(const char* request) const {
  return lists(capabilities_, "requests", request);
}

void PoolMachine::begin_case(CaseToRun what) {
  facts_ = hands_.facts();  // now of the case's run
  current_.what = std::move(what);
  const Item& named = *current_.what.named;
  const RunConfig& config = *current_.what.config;
  if (std::string unknown = named.payload->unknown_to_worker(capabilities_); !unknown.empty()) {
    Attempt skipped;
    skipped.outcome = CaseOutcome::skip;
    skipped.reason = std::move(unknown);
    current_ = {};
    finished_ = std::move(skipped);
    return;
  }
  current_.seq = current_.what.started.seq;
  current_.asks_why = wants_diagnosis() && named.payload->why_undiagnosed().empty();
  current_.sent = now_;
  current_.timeout = named.timeout.value_or(config.timeout);
  current_.progress = ProgressWatch{now_, config.slow_after};
  current_.status_requests = facts_.status_requests;
  send_case();
  enter(State::running, now_ + current_.timeout);
}

// A worker names the files of a case by the ID in the request, which is therefore name_of_files if there is one.
void PoolMachine::send_case() {
  const auto& [config, named, started, next, name_of_files, was_diagnosed, known_mistakes] = current_.what;
  protocol::RunRequest request;
  request.seq = current_.seq;
  request.id = name_of_files.empty() ? named->id : name_of_files;
  request.timeout_ms = current_.timeout.count();
  request.options = {.dump_dir = std::nullopt,
                     .reference_cache = config->reference_cache,
                     .perf = config->perf,
                     .bound_factor = config->bound_factor};
  if (current_.asks_why) {
    request.options.diagnosis_ms = diagnosis_time_of(*config).count();
    if (lists(capabilities_, "options", "known_mistakes")) request.options.known_mistakes = known_mistakes;
  }
  if (named->replay && request.options.perf) request.options.perf->trace_dir.reset();
  if (config->dump_dir && !named->replay) request.options.dump_dir = config->dump_dir->string();
  named->payload->put_into(request, capabilities_);
  hands_.begin_case(current_.seq);
  hands_.send(request);
  // No preparation in a run that takes times: running beside a timed step, it would slow the step down.
  if (next == nullptr || !offers("prepare") || config->perf) return;
  protocol::PrepareRequest prepare;
  if (next->payload->unknown_to_worker(capabilities_).empty() && next->payload->put_into(prepare, capabilities_)) {
    prepare.seq = hands_.next_seq();
    hands_.send(prepare);
  }
}

// --- The wait for its end ---

void PoolMachine::run() {
  take_messages();
  if (current_.result || current_.protocol_break) return conclude();
  if (lost()) return begin_to_drain(State::draining);
  if (facts_.stop.abandon_running()) return begin_to_cancel();
  if (facts_.pausing || over_time()) return conclude();
  tell_progress();
}

void PoolMachine::tell_progress() {
  tell_where_ranks_stand();
  const auto due = current_.progress.take(now_);
  if (!due) return;
  CaseProgress event = progress();
  event.slow = due->slow;
  hands_.emit(std::move(event));
}

CaseProgress PoolMachine::progress() const {
  const CaseStarted& started = current_.what.started;
  return {.index = started.index,
          .id = started.id,
          .seq = started.seq,
          .pool = setup_.pool.pool,
          .phase = current_.progress.phase(),
          .running_ms = in_ms(now_ - current_.sent),
          .timeout_ms = static_cast<double>(current_.timeout.count())};
}

// Asks the worker if somebody wants to know, and emits the answer. Requests that arrive before the answer is there get
// the same answer.
void PoolMachine::tell_where_ranks_stand() {
  const bool open = current_.pong_limit != Clock::time_point::max();
  if (!open) {
    if (current_.status_requests == facts_.status_requests) return;
    current_.pong_limit = now_ + kStandings;
    return ask_ranks();
  }
  if (!current_.pong && now_ < current_.pong_limit) return;
  current_.pong_limit = Clock::time_point::max();
  current_.status_requests = facts_.status_requests;
  CaseProgress event = progress();
  event.ranks = rank_standings(current_.pong, setup_.pool.world_size, offers("cancel"));
  if (!event.ranks.empty()) hands_.emit(std::move(event));
}

void PoolMachine::ask_ranks() {
  current_.ping = hands_.next_seq();
  current_.pong.reset();
  hands_.send(protocol::PingRequest{current_.ping, true});
}

// Called when the run is stopped while the case still runs. If the worker ends the case in order, the report has the
// worker's answer, and the worker can be shut down in order.
void PoolMachine::begin_to_cancel() {
  if (facts_.stop.internal_error) return conclude();
  current_.cancelled = true;
  hands_.send(protocol::CancelRequest{current_.seq});
  const milliseconds grace = current_.what.config->grace;
  enter(State::cancelling, now_ + (offers("cancel") ? grace : std::min(grace, kMayIgnoreCancel)));
}

void PoolMachine::await_cancelled() {
  take_messages();
  if (current_.result || current_.protocol_break) return conclude();
  if (lost()) return begin_to_drain(State::draining);
  if (facts_.stop.kill_at_once || over_time()) conclude();
}

// Does not wait for the end of a pipe without a limit, since a grandchild may hold the pipe open.
void PoolMachine::begin_to_drain(State state) {
  current_.drain_start = now_;
  enter(state, now_ + kDrain);
}

void PoolMachine::drain() {
  take_messages();
  const auto answer_limit = current_.drain_start + kAnswer;
  const bool said = current_.diagnosing() ? current_.diagnosis.has_value() : current_.result.has_value();
  const bool answered = said || current_.protocol_break || facts_.ranks.rank0_ended;
  const bool settled = any_ended() && facts_.ranks.drained;
  if (over_time() || (settled && (answered || now_ >= answer_limit))) {
    return state_ == State::draining ? conclude() : end_diagnosis();
  }
  limit_ = settled ? answer_limit : current_.drain_start + kDrain;
}

void PoolMachine::take_messages() {
  while (!current_.protocol_break) {
    const auto incoming = hands_.take_message();
    if (!incoming) return;
    if (const auto* bad = std::get_if<ProtocolBreak>(&*incoming)) {
      current_.protocol_break = bad->detail;
    } else {
      take(std::get<protocol::Event>(*incoming));
    }
  }
}

void PoolMachine::take(const protocol::Event& event) {
  const bool waiting = current_.seq != 0 && !current_.result;
  if (const auto* started = std::get_if<protocol::StartedEvent>(&event)) {
    if (started->seq == current_.seq) current_.started = true;
  } else if (const auto* progress = std::get_if<protocol::ProgressEvent>(&event)) {
    if (progress->seq == current_.seq) current_.progress.reach(progress->phase);
  } else if (const auto* result = std::get_if<protocol::ResultEvent>(&event)) {
    if (!waiting || result->seq != current_.seq) {
      current_.protocol_break = fmt::format("a result for seq {}, which is not outstanding", result->seq);
    } else if (std::string wrong = contradiction_in(*result, setup_.pool.world_size, current_.cancelled);
               !wrong.empty()) {
      current_.protocol_break = std::move(wrong);
    } else {
      current_.result = *result;
    }
  } else if (const auto* diagnosis = std::get_if<protocol::DiagnosisEvent>(&event)) {
    // Others are ignored: they say nothing against the worker's results.
    if (current_.diagnosing() && diagnosis->seq == current_.seq && !current_.diagnosis) current_.diagnosis = *diagnosis;
  } else if (const auto* pong = std::get_if<protocol::PongEvent>(&event)) {
    if (current_.ping != 0 && pong->seq == current_.ping) current_.pong = *pong;
  } else if (const auto* refusal = std::get_if<protocol::ProtocolErrorEvent>(&event)) {
    const bool of_ping = !refusal->seq && current_.ping != 0 && !current_.pong;
    const bool ours = !of_ping && refusal->seq.value_or(current_.seq) == current_.seq;
    if (!waiting || !ours) return;
    // A worker that cannot read a request sends no result for it.
    protocol::ResultEvent& out = current_.result.emplace();
    out.seq = current_.seq;
    out.outcome = CaseOutcome::error;
    out.reason = fmt::format("the worker refused the request: {}", refusal->message);
  }
}

// --- Its end ---

void PoolMachine::conclude() {
  current_.attempt.duration_ms = in_ms(now_ - current_.sent);
  if (current_.result) return conclude_with_result();
  if (!current_.cancelled && (current_.protocol_break || lost())) return conclude_lost();
  conclude_unfinished();
}

void PoolMachine::conclude_with_result() {
  Attempt& out = current_.attempt;
  out.outcome = current_.result->outcome;
  out.reason = current_.result->reason;
  if (current_.cancelled && out.outcome == CaseOutcome::cancelled) blame_end_of_run();
  disbelieve();
  judge_times();
  if (out.outcome == CaseOutcome::pass || out.outcome == CaseOutcome::skip) return finish_with_result();
  enter(State::fencing, now_ + kFenceWait);
}

void PoolMachine::await_fences() {
  if (!facts_.ranks.tails_complete && !over_time()) return;
  hands_.keep_tails();
  if (!current_.diagnosing() || current_.attempt.outcome != CaseOutcome::fail) return finish_with_result();
  // A case that may be retried counts as a failure only when it is not retried.
  if (!retries_of(*current_.what.named, *current_.what.config).allow(CaseOutcome::fail, 0)) {
    hands_.count_failure();
    current_.attempt.counted = true;
  }
  hands_.reopen_tails();  // the stderr tail then includes the last words of a rank that dies during the diagnosis
  current_.progress.reach(case_phase::kDiagnosis);
  enter(State::diagnosing, now_ + diagnosis_time_of(*current_.what.config) + current_.what.config->diagnosis_grace);
}

void PoolMachine::finish_with_result() {
  take_messages();
  Attempt& out = current_.attempt;
  if (auto judged = judge(); judged && !current_.disbelieved) out.retirement = std::move(judged);
  const bool stands =
      out.outcome == CaseOutcome::pass || out.outcome == CaseOutcome::skip || out.outcome == CaseOutcome::fail;
  if (any_ended() && !stands) {
    out.reason = fmt::format("{}, after the result \"{}\": {}", describe_deaths(), to_string(out.outcome), out.reason);
    out.outcome = CaseOutcome::crash;
  }
  out.result = *std::move(current_.result);
  finish_attempt(State::idle);
}

// `next`: idle if the worker has answered, so that it can be asked to shut down.
void PoolMachine::finish_attempt(State next) {
  Attempt& out = current_.attempt;
  // If a rank has exited, the description of the exits says it.
  if (is_failure(out.outcome) && !any_ended() && !facts_.ranks.silent.empty()) out.reason += "; " + facts_.ranks.silent;
  if (out.outcome == CaseOutcome::fail && wants_diagnosis()) {
    std::string why = current_.what.named->payload->why_undiagnosed();
    if (!why.empty()) out.diagnosis = protocol::unknown_diagnosis(std::move(why));
  }
  if (out.charged) ++cases_;
  last_result_ = now_;
  finished_ = std::move(out);
  current_ = {};
  enter(next);
}

// The attempt of a case whose pool was lost before there was a result.
void PoolMachine::conclude_lost() {
  Attempt& out = current_.attempt;
  out.charged = current_.started;
  out.outcome = CaseOutcome::crash;
  if (any_ended()) {
    out.retirement = {reason_of_death(), describe_deaths()};
  } else if (current_.protocol_break) {
    out.retirement = {RetireReason::protocol_break, *current_.protocol_break};
  } else if (facts_.ranks.stdin_broken) {
    out.retirement = {RetireReason::stdin_broken, "rank 0 closed its stdin"};
  } else {
    out.retirement = {RetireReason::protocol_break, "rank 0 closed its stdout"};
  }
  out.reason = out.retirement->detail + last_phase(" (in ", ")");
  hands_.keep_tails();
  finish_attempt(State::over);
}

// The attempt of a case that is still running when the run is stopped or paused, or when the deadline is reached.
void PoolMachine::conclude_unfinished() {
  Attempt& out = current_.attempt;
  const StopState& stop = facts_.stop;
  if (stop.cancels()) {
    blame_end_of_run();
    out.retirement = {RetireReason::interrupted, out.reason, stop.kill_at_once};
    // Some workers die when they are asked to cancel a case.
    if (any_ended()) out.retirement->detail += fmt::format("; {}", describe_deaths());
    hands_.keep_tails();
    return finish_attempt(State::over);
  }
  if (facts_.pausing && !stop.abandon_running()) {
    out.charged = false;
    out.retirement = {RetireReason::paused, "the run was paused while a case ran" + last_phase(" (in ", ")")};
    return finish_attempt(State::over);
  }
  if (stop.global_timeout) {
    blame_end_of_run();
  } else {
    out.outcome = CaseOutcome::timeout;
    out.reason = fmt::format("no result within {} ms ({})", current_.timeout.count(),
                             current_.what.named->timeout ? "the deadline of this case" : "--timeout");
  }
  // If the case has started, its request has been read; bytes left in the pipe are then those of the request to
  // prepare.
  const bool unread = !current_.started && facts_.ranks.stdin_pending;
  if (!current_.started) out.reason += unread ? "; rank 0 has not read its request" : "; the case never started";
  out.reason += last_phase("; the last phase was ", "") + describe_misplaced_sentinel();
  out.retirement = {unread ? RetireReason::stdin_broken : RetireReason::timeout, out.reason};
  if (current_.started) ask_ranks();
  show_stacks();
}

// The ranks of our worker answer SIGUSR2 with a stack trace on stderr, which becomes part of the case's tail. A worker
// that does not handle the signal dies of it; it would be killed a moment later anyway.
void PoolMachine::show_stacks() {
  hands_.reopen_tails();
  hands_.show_stacks();
  enter(State::showing_stacks, now_ + current_.what.config->stack_wait);
}

void PoolMachine::await_stacks() {
  while (const auto incoming = hands_.take_message()) {
    const auto* const event = std::get_if<protocol::Event>(&*incoming);
    const auto* const pong = event == nullptr ? nullptr : std::get_if<protocol::PongEvent>(event);
    if (pong == nullptr || pong->seq != current_.ping || pong->difference.empty()) continue;
    current_.attempt.reason += "; " + protocol::cut_text(pong->difference, kMostOfDifference);
  }
  if (!facts_.ranks.all_ended && !facts_.stop.cancels() && !over_time()) return;
  hands_.keep_tails();
  return current_.result ? finish_with_result() : finish_attempt(State::over);
}

// --- Judging ---

// Turns a pass into an error if its own figures contradict it. Then the pool is retired, since its next results cannot
// be trusted either.
void PoolMachine::disbelieve() {
  Attempt& out = current_.attempt;
  if (out.outcome != CaseOutcome::pass) return;
  const bool promised =
      current_.what.named->payload->has_figures() && capabilities_.value("figures", nlohmann::json()) == true;
  std::string why = refutation_of_pass(*current_.result, setup_.pool.world_size, promised);
  if (why.empty()) return;
  correct_checks(*current_.result);
  current_.result->perf.reset();
  out.outcome = CaseOutcome::error;
  out.reason = why;
  current_.disbelieved = true;
  out.retirement = {RetireReason::protocol_break, std::move(why)};
}

// In a run that takes times, a pass without times becomes an error, and a pass that is slower than --max-ratio allows
// becomes a fail.
void PoolMachine::judge_times() {
  Attempt& out = current_.attempt;
  const RunConfig& config = *current_.what.config;
  if (!config.perf || out.outcome != CaseOutcome::pass || !current_.what.named->payload->has_figures()) return;
  auto& perf = current_.result->perf;
  if (!perf || perf->step_ms.median <= 0) {
    out.outcome = CaseOutcome::error;
    out.reason = fmt::format("the case passed, but the worker gave {} (--mode perf asks for them)",
                             perf ? "a step of 0 ms instead of times" : "no times");
    perf.reset();
    return;
  }
  const std::optional<double> before = current_.what.named->baseline_ms;
  if (!config.max_ratio || !before) return;
  const double ms = perf->step_ms.median;
  if (ms <= *config.max_ratio * *before) return;
  out.outcome = CaseOutcome::fail;
  out.reason = fmt::format("{:.3f} times as slow as the baseline ({:.3f} ms, was {:.3f} ms; --max-ratio {})",
                           ms / *before, ms, *before, *config.max_ratio);
}

// Returns why the pool must be retired after a case that has a result; nullopt: it need not be.
std::optional<Retirement> PoolMachine::judge() {
  if (any_ended()) return Retirement{RetireReason::died_after_result, describe_deaths()};
  if (current_.protocol_break) return Retirement{RetireReason::protocol_break, *current_.protocol_break};
  if (!current_.result->healthy) return Retirement{RetireReason::unhealthy, current_.result->reason};
  if (auto growth = growth_past_limit()) return Retirement{RetireReason::hygiene, *std::move(growth)};
  return std::nullopt;
}

std::optional<std::string> PoolMachine::growth_past_limit() {
  const auto grown = [](std::int64_t before, std::int64_t now, std::int64_t limit) {
    return limit > 0 && now - before > limit;
  };
  const HygieneLimits& limits = current_.what.config->hygiene;
  for (const protocol::Hygiene& now : current_.result->hygiene) {
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
RetireReason PoolMachine::reason_of_death() const {
  const bool after_result = cases_ > 0 && !current_.started && now_ - last_result_ < kDeathAfterResult;
  return after_result ? RetireReason::died_after_result : RetireReason::crash;
}

// Sets outcome and reason of a case that was still running when the run was stopped.
void PoolMachine::blame_end_of_run() {
  const bool out_of_time = !facts_.stop.cancels();
  current_.attempt.outcome = out_of_time ? CaseOutcome::timeout : CaseOutcome::cancelled;
  current_.attempt.reason = out_of_time ? fmt::format("still running at the end of the run's {} ms (--global-timeout)",
                                                      current_.what.config->global_timeout.count())
                                        : kInterrupted;
}

std::string PoolMachine::last_phase(std::string_view before, std::string_view after) const {
  const std::string& phase = current_.progress.phase();
  return phase.empty() ? "" : fmt::format("{}{}{}", before, phase, after);
}

// --- The diagnosis of a failed case. Whatever comes of it, the outcome stays. ---

// Whether a failure of the case is to be diagnosed. A case that runs several times is diagnosed once, and of the cases
// that a search tries on its way to the smallest one only the smallest.
bool PoolMachine::wants_diagnosis() const {
  const Item& named = *current_.what.named;
  return current_.what.config->diagnosis && !named.replay && !is_to_fail(named.expected) &&
         named.search != SearchStep::smaller && lists(capabilities_, "options", "diagnosis_ms") &&
         (named.runs == 1 || !current_.what.was_diagnosed);
}

void PoolMachine::await_diagnosis() {
  if (over_time()) return end_diagnosis();
  take_messages();
  if (current_.diagnosis || current_.protocol_break || facts_.stop.abandon_running() || facts_.pausing) {
    return end_diagnosis();
  }
  if (lost()) return begin_to_drain(State::diagnosis_draining);
  tell_progress();
}

void PoolMachine::end_diagnosis() {
  Attempt& out = current_.attempt;
  const std::string& id = current_.what.started.id;
  if (current_.diagnosis) {
    out.diagnosis = current_.diagnosis->diagnosis;
    if (!current_.diagnosis->healthy) {
      out.retirement = {RetireReason::unhealthy,
                        fmt::format("its worker asked for that after the diagnosis of {}", id)};
    }
    return finish_with_result();
  }
  std::string why;
  if (any_ended()) {
    why = fmt::format("the diagnosis failed: {}", describe_deaths());
  } else if (current_.protocol_break) {
    why = fmt::format("the diagnosis failed: {}", *current_.protocol_break);
  } else if (lost()) {
    why = fmt::format("the diagnosis failed: rank 0 closed its {}", facts_.ranks.stdin_broken ? "stdin" : "stdout");
  } else if (facts_.stop.abandon_running()) {
    why = "the run was stopped before the diagnosis had ended";
  } else if (facts_.pausing) {
    why = "the run was paused during the diagnosis";
    out.retirement = {RetireReason::paused, why};
  } else {
    why = fmt::format("the diagnosis ran out of its {:g} s",
                      std::chrono::duration<double>(diagnosis_time_of(*current_.what.config)).count());
    out.retirement = {RetireReason::timeout, fmt::format("{}: {}", id, why)};
  }
  out.diagnosis = protocol::unknown_diagnosis(std::move(why));
  if (out.retirement && out.retirement->reason == RetireReason::timeout) return show_stacks();
  hands_.keep_tails();
  finish_with_result();
}

}  // namespace cp_pool
