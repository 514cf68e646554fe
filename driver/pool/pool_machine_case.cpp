// A pool between cases, and one case from its request to its conclusion.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "cases/case_phases.h"
#include "driver/core/figures.h"
#include "driver/core/payload.h"
#include "driver/pool/pool_machine.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPipeCloseWait{200};
constexpr milliseconds kDrainWait{200};            // after an exit, for reading what is still in the pipes
constexpr milliseconds kResultWait{50};            // part of it, for a result of a living rank 0 that may be on its way
constexpr milliseconds kFenceWait{250};            // after a result, for the fences in the ranks' stderr
constexpr milliseconds kPongWait{1200};            // a worker answers within 1 s, naming the ranks that have answered
constexpr std::size_t kMaxDifferenceBytes = 1000;  // bytes of a worker's text
constexpr milliseconds kUnlistedCancelWait{500};   // for a worker that does not list cancel

}  // namespace

// --- Idle ---

void PoolMachine::await_case() {
  read_messages();
  if (lost() && !any_ended()) {
    // The pipes of a rank that ends close a moment before its exit is seen, and the exit is the better explanation.
    if (state_ == State::idle) enter(State::pipes_closed, now_ + kPipeCloseWait);
    if (!over_time()) return;
  }
  if (auto why = idle_retirement()) {
    enter(State::over);
    finished_ = *std::move(why);
  } else if (auto what = hands_.take_case()) {
    begin_case(*std::move(what));
  } else if (!facts_.wanted) {
    finished_ =
        Retirement{facts_.stop.abandon_running() ? RetireReason::interrupted : RetireReason::finished, "", false};
  }
}

std::optional<Retirement> PoolMachine::idle_retirement() {
  if (auto lost = loss("idle, ")) {
    if (any_ended()) lost->detail += describe_last_words();
    return lost;
  }
  if (!facts_.ranks.silent.empty()) return Retirement{RetireReason::crash, "idle, " + facts_.ranks.silent};
  if (facts_.pausing) return Retirement{RetireReason::paused, "the run was paused"};
  return std::nullopt;
}

// --- The request ---

void PoolMachine::begin_case(CaseToRun what) {
  facts_ = hands_.facts();  // now of the case's run
  current_.what = std::move(what);
  const Item& named = *current_.what.named;
  const RunConfig& config = *current_.what.config;
  if (std::string unknown = named.payload->unknown_to_worker(capabilities_); !unknown.empty()) {
    Conclusion skipped;
    skipped.outcome = CaseOutcome::skip;
    skipped.reason = std::move(unknown);
    current_ = {};
    finished_ = std::move(skipped);
    return;
  }
  current_.seq = current_.what.started.seq;
  current_.asks_diagnosis = wants_diagnosis();
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
  request.options = {
      .reference_cache = config->reference_cache, .perf = config->perf, .bound_factor = config->bound_factor};
  if (current_.asks_diagnosis) {
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
  read_messages();
  if (current_.result || current_.protocol_break) return conclude();
  if (lost()) return begin_to_drain(State::draining);
  if (facts_.stop.abandon_running()) return begin_to_cancel();
  if (facts_.pausing || over_time()) return conclude();
  emit_progress();
}

void PoolMachine::emit_progress() {
  emit_standings();
  const std::optional<bool> slow = current_.progress.take(now_);
  if (!slow) return;
  CaseProgress event = progress();
  event.slow = *slow;
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
void PoolMachine::emit_standings() {
  const bool open = current_.pong_limit != Clock::time_point::max();
  if (!open) {
    if (current_.status_requests == facts_.status_requests) return;
    current_.pong_limit = now_ + kPongWait;
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
  enter(State::cancelling, now_ + (offers("cancel") ? grace : std::min(grace, kUnlistedCancelWait)));
}

void PoolMachine::await_cancelled() {
  read_messages();
  if (current_.result || current_.protocol_break) return conclude();
  if (lost()) return begin_to_drain(State::draining);
  if (facts_.stop.kill_at_once || over_time()) conclude();
}

// Does not wait for the end of a pipe without a limit, since a grandchild may hold the pipe open.
void PoolMachine::begin_to_drain(State state) {
  current_.drain_start = now_;
  enter(state, now_ + kDrainWait);
}

void PoolMachine::drain() {
  read_messages();
  const auto answer_limit = current_.drain_start + kResultWait;
  const bool said = current_.diagnosing() ? current_.diagnosis.has_value() : current_.result.has_value();
  const bool answered = said || current_.protocol_break || facts_.ranks.rank0_ended;
  const bool settled = any_ended() && facts_.ranks.drained;
  if (over_time() || (settled && (answered || now_ >= answer_limit))) {
    return state_ == State::draining ? conclude() : end_diagnosis();
  }
  limit_ = settled ? answer_limit : current_.drain_start + kDrainWait;
}

void PoolMachine::read_messages() {
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
  current_.conclusion.duration_ms = in_ms(now_ - current_.sent);
  if (current_.result) return conclude_with_result();
  if (!current_.cancelled && (current_.protocol_break || lost())) return conclude_lost();
  conclude_unfinished();
}

void PoolMachine::conclude_with_result() {
  Conclusion& out = current_.conclusion;
  out.outcome = current_.result->outcome;
  out.reason = current_.result->reason;
  if (current_.cancelled && out.outcome == CaseOutcome::cancelled) set_stopped_outcome();
  reject_false_pass();
  check_times();
  if (out.outcome == CaseOutcome::pass || out.outcome == CaseOutcome::skip) return finish_with_result();
  enter(State::fencing, now_ + kFenceWait);
}

void PoolMachine::await_fences() {
  if (!facts_.ranks.tails_complete && !over_time()) return;
  hands_.keep_tails();
  if (!current_.diagnosing() || current_.conclusion.outcome != CaseOutcome::fail) return finish_with_result();
  // A case that may be retried counts as a failure only when it is not retried.
  if (!retries_of(*current_.what.named, *current_.what.config).allow(CaseOutcome::fail, 0)) {
    hands_.count_failure();
    current_.conclusion.counted = true;
  }
  hands_.reopen_tails();  // the stderr tail then includes the last words of a rank that dies during the diagnosis
  current_.progress.reach(case_phase::kDiagnosis);
  enter(State::diagnosing, now_ + diagnosis_time_of(*current_.what.config) + current_.what.config->diagnosis_grace);
}

void PoolMachine::finish_with_result() {
  read_messages();
  Conclusion& out = current_.conclusion;
  if (auto judged = judge(); judged && !current_.rejected) out.retirement = std::move(judged);
  const bool stands =
      out.outcome == CaseOutcome::pass || out.outcome == CaseOutcome::skip || out.outcome == CaseOutcome::fail;
  if (any_ended() && !stands) {
    out.reason = fmt::format("{}, after the result \"{}\": {}", describe_deaths(), to_string(out.outcome), out.reason);
    out.outcome = CaseOutcome::crash;
  }
  out.result = *std::move(current_.result);
  end_case(State::idle);
}

// `next`: idle if the worker has answered, so that it can be asked to shut down.
void PoolMachine::end_case(State next) {
  Conclusion& out = current_.conclusion;
  // If a rank has exited, the description of the exits says it.
  if (is_failure(out.outcome) && !any_ended() && !facts_.ranks.silent.empty()) out.reason += "; " + facts_.ranks.silent;
  if (out.charged) ++cases_;
  last_result_ = now_;
  finished_ = std::move(out);
  current_ = {};
  enter(next);
}

// The attempt of a case whose pool was lost before there was a result.
void PoolMachine::conclude_lost() {
  Conclusion& out = current_.conclusion;
  out.charged = current_.started;
  out.outcome = CaseOutcome::crash;
  out.retirement = loss("");
  out.reason = out.retirement->detail + last_phase(" (in ", ")");
  hands_.keep_tails();
  end_case(State::over);
}

// The attempt of a case that is still running when the run is stopped or paused, or when the deadline is reached.
void PoolMachine::conclude_unfinished() {
  Conclusion& out = current_.conclusion;
  const StopState& stop = facts_.stop;
  if (stop.cancels()) {
    set_stopped_outcome();
    out.retirement = {RetireReason::interrupted, out.reason, stop.kill_at_once};
    // Some workers die when they are asked to cancel a case.
    if (any_ended()) out.retirement->detail += fmt::format("; {}", describe_deaths());
    hands_.keep_tails();
    return end_case(State::over);
  }
  if (facts_.pausing && !stop.abandon_running()) {
    out.charged = false;
    out.retirement = {RetireReason::paused, "the run was paused while a case ran" + last_phase(" (in ", ")")};
    return end_case(State::over);
  }
  if (stop.global_timeout) {
    set_stopped_outcome();
  } else {
    out.outcome = CaseOutcome::timeout;
    out.reason = fmt::format("no result within {} ms ({})", current_.timeout.count(),
                             current_.what.named->timeout ? "the deadline of this case" : "--timeout");
  }
  // If the case has started, its request has been read; bytes left in the pipe are then those of the request to
  // prepare.
  const bool unread = !current_.started && facts_.ranks.stdin_pending;
  if (!current_.started) out.reason += unread ? "; rank 0 has not read its request" : "; the case never started";
  out.reason += last_phase("; the last phase was ", "");
  if (const std::string_view line = facts_.ranks.misplaced_sentinel; !line.empty()) {  // it may have answered
    out.reason += fmt::format("; a line of rank 0's stdout has the sentinel, but does not begin with \"{}\": {}",
                              protocol::kResponsePrefix, protocol::cut_text(line, kMostLastWords));
  }
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
    const auto* const pong = message_in<protocol::PongEvent>(*incoming);
    if (pong == nullptr || pong->seq != current_.ping || pong->difference.empty()) continue;
    current_.conclusion.reason += "; " + protocol::cut_text(pong->difference, kMaxDifferenceBytes);
  }
  if (!facts_.ranks.all_ended && !facts_.stop.cancels() && !over_time()) return;
  hands_.keep_tails();
  return current_.result ? finish_with_result() : end_case(State::over);
}

// Sets outcome and reason of a case that was still running when the run was stopped.
void PoolMachine::set_stopped_outcome() {
  const bool out_of_time = !facts_.stop.cancels();
  current_.conclusion.outcome = out_of_time ? CaseOutcome::timeout : CaseOutcome::cancelled;
  current_.conclusion.reason = out_of_time
                                   ? fmt::format("still running at the end of the run's {} ms (--global-timeout)",
                                                 current_.what.config->global_timeout.count())
                                   : kInterrupted;
}

std::string PoolMachine::last_phase(std::string_view before, std::string_view after) const {
  const std::string& phase = current_.progress.phase();
  return phase.empty() ? "" : fmt::format("{}{}{}", before, phase, after);
}

}  // namespace cp_pool
