#include "worker/coordinator.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_error.h"
#include "cases/case_groups.h"
#include "cases/case_json.h"

namespace cp_pool {

using protocol::ResultEvent;

Coordinator::Coordinator(Ports& ports, protocol::ReadyEvent ready, Limits limits)
    : ports_(ports), ready_(std::move(ready)), limits_(limits), world_size_(ready_.world_size) {}

// --- Requests --------------------------------------------------------------------------------------------------------
void Coordinator::on_request(const protocol::Request& request) {
  if (state_ == State::stopping || state_ == State::finished) return;
  std::visit([this](const auto& r) { handle(r); }, request);
}

void Coordinator::on_bad_request(const protocol::ProtocolError& error) {
  ports_.emit(protocol::ProtocolErrorEvent{error.seq, error.what()});
}

void Coordinator::refuse(std::int64_t seq, const std::string& reason, bool healthy) {
  ResultEvent result;
  result.seq = seq;
  result.outcome = CaseOutcome::error;
  result.reason = reason;
  result.healthy = healthy;
  ports_.emit(result);
}

std::string Coordinator::why_refused(const protocol::RunRequest& request) const {
  if (!request.call.is_null()) {
    const auto offered = ready_.capabilities.find("calls");
    if (offered == ready_.capabilities.end() || *offered != true) return "this worker runs no calls";
    const bool named =
        request.call.is_object() && request.call.contains("function") && request.call["function"].is_string();
    return named ? "" : "call: 'function' is missing";
  }
  try {
    const Case c = parse_case(request.case_json, "case");
    if (const int ranks = world_size(c); ranks != world_size_) {
      const std::string what = c.group == 1 ? fmt::format("cp_size {}", c.cp_size)
                                            : fmt::format("cp_size {} in {} groups", c.cp_size, c.group);
      return fmt::format("{} on a pool of {} ranks", what, world_size_);
    }
    // The ranks compute the lengths themselves. If the driver's lengths differ, the verdict would be on another
    // problem.
    const nlohmann::json own = to_json(resolve_lengths(c));
    for (const auto& [key, value] : own.items()) {
      if (request.lengths.contains(key) && request.lengths.at(key) != value) {
        return fmt::format("lengths: {} differs from the lengths of the case", key);
      }
    }
  } catch (const CaseError& e) {
    return e.what();
  }
  return {};
}

void Coordinator::handle(const protocol::RunRequest& request) {
  if (state_ == State::unhealthy) return refuse(request.seq, "this pool is no longer healthy", false);
  if (state_ != State::idle) {
    const std::string why =
        state_ == State::starting ? "the pool is not ready" : fmt::format("seq {} is still outstanding", case_.seq);
    return ports_.emit(protocol::ProtocolErrorEvent{request.seq, fmt::format("run: {}", why)});
  }
  if (std::string why = why_refused(request); !why.empty()) return refuse(request.seq, why, true);
  case_ = {.seq = request.seq,
           .world_size = world_size_,
           .outcomes = {},
           .cancelled = false,
           .perf = request.options.perf,
           .diagnosis_ms = request.options.diagnosis_ms};
  resets_ = 0;
  renew_groups_ = false;
  arrivals_.clear();
  state_ = State::running;
  RunCommand command = request;
  command.lengths = nlohmann::json::object();
  ports_.command(command);
}

// A prepare request is a hint, passed to all ranks in any state. It is dropped while steps are timed, because a
// preparation would slow them down and could break the capture of a graph.
void Coordinator::handle(const protocol::PrepareRequest& request) {
  const bool timed = state_ != State::idle && case_.perf;
  if (state_ == State::starting || state_ == State::unhealthy || timed) return;
  ports_.watch(request);
}

void Coordinator::handle(const protocol::CancelRequest& request) {
  if (!is_current(request.seq) || state_ == State::rebuilding || result_is_out_) return;  // nothing to cancel
  case_.cancelled = true;
  abort_case();
}

void Coordinator::handle(const protocol::PingRequest& request) {
  if (!request.all || state_ == State::starting) return ports_.emit(protocol::PongEvent{request.seq});
  if (probe_) finish_probe();
  probe_ = Probe{request.seq, ports_.now() + limits_.probe, {}, {}};
  ports_.watch(ProbeCommand{++last_token_});
}

void Coordinator::on_end_of_input() {
  if (state_ == State::stopping || state_ == State::finished) return;
  state_ = State::stopping;
  probe_.reset();
  deadline_ = ports_.now() + limits_.exit;
  ports_.watch(ExitCommand{});
  ports_.command(ExitCommand{});
}

// --- Ranks -----------------------------------------------------------------------------------------------------------
void Coordinator::on_rank_message(const RankMessage& message) {
  std::visit([this](const auto& m) { handle(m); }, message);
}

bool Coordinator::is_current(std::int64_t seq) const {
  const bool busy = state_ == State::running || state_ == State::diagnosing || state_ == State::freeing ||
                    state_ == State::rebuilding;
  return busy && case_.seq == seq;
}

void Coordinator::handle(const RankStarted& started) {
  ready_.ranks.push_back(started.info);
  for (const auto& [phase, ms] : started.startup_ms) {
    double& slowest = ready_.startup_ms[phase];
    slowest = std::max(slowest, ms);
  }
  if (started.info.rank == 0) ready_.capabilities["data_plane"] = started.data_plane;
  if (state_ != State::starting || static_cast<int>(ready_.ranks.size()) < world_size_) return;
  std::ranges::sort(ready_.ranks, {}, &protocol::RankInfo::rank);
  state_ = State::idle;
  ports_.emit(ready_);
}

void Coordinator::handle(const CaseReset& reset) {
  if (!is_current(reset.seq)) return;
  renew_groups_ = renew_groups_ || reset.lost_groups;
  if (++resets_ < world_size_) return;
  // The event is sent before any rank begins, so that the driver can attribute a rank's death to the case.
  ports_.emit(protocol::StartedEvent{reset.seq});
  if (state_ == State::running) ports_.command(BeginCommand{reset.seq, true, renew_groups_});
}

void Coordinator::handle(const CasePhase& phase) {
  if ((state_ == State::running || state_ == State::diagnosing) && is_current(phase.seq))
    ports_.emit(protocol::ProgressEvent{phase.seq, phase.phase});
}

void Coordinator::handle(const CaseArrived& arrived) {
  if (!is_current(arrived.seq)) return;
  // The rank had not seen the abort.
  if (state_ == State::freeing) return ports_.command(LeaveCommand{arrived.seq, false, ""});
  if (state_ != State::running && state_ != State::diagnosing) return;
  arrivals_.add(arrived);
  if (arrivals_.all_of(world_size_)) {
    deadline_.reset();
    const LeaveCommand leave{arrived.seq, true, arrivals_.difference()};
    if (state_ == State::diagnosing) arrivals_.clear();  // ranks that have declined a question meet again at the end
    return ports_.command(leave);
  }
  // Other ranks may wait in the code under test for one that has declined the case.
  if (!deadline_ && arrivals_.any_declined()) deadline_ = ports_.now() + limits_.decline;
}

void Coordinator::handle(const CaseFailing& failing) {
  if (is_current(failing.seq)) abort_case();
}

void Coordinator::handle(const CaseDone& done) {
  if (!is_current(done.seq)) return;
  const auto known = std::ranges::find(case_.outcomes, done.outcome.rank, &RankOutcome::rank);
  if (known != case_.outcomes.end()) return;
  case_.outcomes.push_back(done.outcome);
  if (done.outcome.failure) abort_case();
  if (static_cast<int>(case_.outcomes.size()) == world_size_) case_complete();
}

void Coordinator::handle(const DiagnosisDone& done) {
  if (!result_is_out_ || !is_current(done.seq)) return;
  diagnoses_.push_back(done);
  if (done.outcome.failure) abort_case();
  if (static_cast<int>(diagnoses_.size()) < world_size_) return;
  if (state_ == State::diagnosing) return finish_diagnosis(true, "");
  start_rebuild();
}

void Coordinator::abort_case() {
  if (state_ != State::running && state_ != State::diagnosing) return;
  state_ = State::freeing;
  deadline_ = ports_.now() + limits_.free;
  ports_.watch(AbortCommand{generation_});
  if (resets_ < world_size_) ports_.command(BeginCommand{case_.seq, false, false});
  if (arrivals_.none()) return;
  ports_.command(LeaveCommand{case_.seq, false, ""});
  case_.absent = arrivals_.absent(world_size_);
}

// Called when every rank is free.
void Coordinator::case_complete() {
  if (state_ == State::running) return finish_case(true, "");
  const RankOutcome* const cause = find_cause(case_.outcomes);
  const bool barrier_only = cause != nullptr && cause->failure->phase == FailurePhase::barrier && !case_.cancelled;
  // All ranks finished the case but were not at the same place afterwards, so the pool cannot be trusted.
  if (barrier_only) return finish_case(false, name_rank(*cause, cause->failure->summary));
  start_rebuild();
}

void Coordinator::start_rebuild() {
  state_ = State::rebuilding;
  deadline_ = ports_.now() + limits_.rebuild;
  rebuilt_ = 0;
  ports_.command(RebuildCommand{generation_ + 1});
}

void Coordinator::handle(const Rebuilt& rebuilt) {
  if (state_ != State::rebuilding || rebuilt.generation != generation_ + 1) return;
  if (rebuilt.declined) return finish(false, "");
  if (!rebuilt.error.empty()) {
    return finish(false, fmt::format("rank {}: rebuilding failed: {}", rebuilt.rank, rebuilt.error));
  }
  if (++rebuilt_ < world_size_) return;
  ports_.forget_generation(generation_);
  ++generation_;
  finish(true, "");
}

void Coordinator::finish(bool healthy, const std::string& trouble) {
  if (result_is_out_) return finish_diagnosis(healthy, trouble);
  finish_case(healthy, trouble);
}

void Coordinator::finish_case(bool healthy, const std::string& trouble) {
  ResultEvent result = aggregate(case_);
  result.healthy = healthy;
  if (!trouble.empty()) result.reason += fmt::format("{}{}", result.reason.empty() ? "" : "; ", trouble);
  deadline_.reset();
  state_ = healthy ? State::idle : State::unhealthy;
  result.diagnosing = can_be_diagnosed(case_, result);
  ports_.emit(result);
  if (result.diagnosing) start_diagnosis();
}

// The result has been sent, so a diagnosis cannot change the outcome.
void Coordinator::start_diagnosis() {
  state_ = State::diagnosing;
  result_is_out_ = true;
  diagnoses_.clear();
  arrivals_.clear();
  ports_.command(DiagnoseCommand{case_.seq, *case_.diagnosis_ms});
}

void Coordinator::finish_diagnosis(bool healthy, const std::string& trouble) {
  protocol::DiagnosisEvent event = aggregate_diagnosis(case_, diagnoses_, trouble);
  event.healthy = healthy;
  deadline_.reset();
  state_ = healthy ? State::idle : State::unhealthy;
  result_is_out_ = false;
  ports_.emit(event);
}

void Coordinator::handle(const Probed& probed) {
  if (!probe_ || probed.token != last_token_) return;
  probe_->answers.push_back(probed.where);
  if (probed.history) probe_->histories.push_back(*probed.history);
  if (static_cast<int>(probe_->answers.size()) == world_size_) finish_probe();
}

void Coordinator::finish_probe() {
  std::ranges::sort(probe_->answers, {}, &protocol::RankPhase::rank);
  protocol::PongEvent pong{probe_->seq, {}, std::move(probe_->answers), group_differences(probe_->histories, true)};
  for (const protocol::RankPhase& answer : pong.phases) pong.ranks.push_back(answer.rank);
  probe_.reset();
  ports_.emit(pong);
}

void Coordinator::handle(const Goodbye&) {
  ++goodbyes_;
  if (state_ == State::stopping && goodbyes_ == world_size_) state_ = State::finished;
}

// --- Time ------------------------------------------------------------------------------------------------------------
std::optional<Coordinator::Clock::time_point> Coordinator::next_deadline() const {
  if (!probe_) return deadline_;
  return deadline_ ? std::min(*deadline_, probe_->deadline) : probe_->deadline;
}

void Coordinator::on_time() {
  const Clock::time_point now = ports_.now();
  if (probe_ && now >= probe_->deadline) finish_probe();
  if (!deadline_ || now < *deadline_) return;
  deadline_.reset();
  switch (state_) {
    case State::running:
    case State::diagnosing:
      return abort_case();
    case State::freeing:
      return finish(false, "not every rank came back from the abort");
    case State::rebuilding:
      return finish(false, fmt::format("rebuilding the communicators took longer than {} ms", limits_.rebuild.count()));
    case State::stopping:
      state_ = State::finished;
      return;
    default:
      return;
  }
}

}  // namespace cp_pool
