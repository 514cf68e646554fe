#include "worker/rank_compute.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string_view>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "cases/case_groups.h"
#include "cases/case_id.h"
#include "cases/case_json.h"
#include "cases/case_phases.h"
#include "cp_core/cuda/device.h"
#include "worker/pending_operation.h"
#include "worker/rank_device.h"
#include "worker/rank_outcome.h"
#include "worker/wrong_results.h"

namespace cp_pool {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRebuildLimit{900};
constexpr milliseconds kLongestCase = std::chrono::hours{1000};
constexpr milliseconds kShortestBarrier{100};
// Phases in which no code under test runs, and ranks wait for each other.
constexpr std::array<std::string_view, 3> kOfTheJudge{case_phase::kReference, case_phase::kCompare, case_phase::kDump};
constexpr const char* kCall = "call";  // the phase in which the function of a call runs
// Tags of barriers, which differ from the seq of every case.
constexpr std::int64_t kLonelyTag = -1;
constexpr std::int64_t kDiagnosisTag = -3;

}  // namespace

void RankCompute::connect(int generation, milliseconds limit, ConnectOptions options) {
  options.shares_gpu = parts_.gpu.shared_gpus > 0;
  const CpGroups groups = connect_groups(parts_.environment, parts_.device, store_, generation, limit, options);
  parts_.faults.set_lonely_collective([this, cp = groups.cp] {
    const PendingOperationGuard guard("barrier on group cp: joined by no other rank");
    cp->checked_barrier(kLonelyTag, time_left());
  });
  parts_.runner.connect({.environment = parts_.environment,
                         .generation = generation,
                         .shares_gpus = parts_.gpu.shared_gpus > 0,
                         .device = parts_.device,
                         .store_prefix = generation_prefix(generation) + "runner/",
                         .limit = limit});
  parts_.groups.put(observe(groups, [this] { parts_.faults.reach(Fault::Phase::inside); }), generation);
}

void RankCompute::serve() {
  try {
    while (!exiting_) {
      const ComputeCommand command = messages_.receive();
      if (std::holds_alternative<ExitCommand>(command)) return;
      if (const auto* run = std::get_if<RunCommand>(&command)) handle(*run);
      if (const auto* diagnose = std::get_if<DiagnoseCommand>(&command)) handle(*diagnose);
      if (const auto* rebuild = std::get_if<RebuildCommand>(&command)) handle(*rebuild);
    }
  } catch (const ControlPlaneError&) {
    throw;
  } catch (...) {
    // The process ends here, so that its death is seen at once. Unwinding would wait for the control thread, which
    // waits for a command that never comes, and the rank would look busy until a deadline.
    die_of_current_exception(parts_.environment.rank, "the computing thread failed");
  }
}

void RankCompute::handle(const RunCommand& request) {
  judged_.reset();  // freed first: the reset returns cached memory
  // The remaining tenth of timeout_ms is for the abort and the result, so that they come before the driver's own
  // deadline.
  deadline_ = Clock::now() + std::min(milliseconds(request.timeout_ms), kLongestCase) * 9 / 10;
  // Preparations must not run beside timed steps or the capture of a graph.
  if (request.options.perf) parts_.prefetcher.settle(time_left());
  division_ = {};
  known_mistakes_ = request.options.known_mistakes;
  judges_ = false;
  RankOutcome outcome;
  outcome.rank = parts_.environment.rank;
  std::optional<Declined> declined;
  try {
    run_case(request, outcome);
  } catch (const ControlPlaneError&) {
    throw;
  } catch (const Declined& reason) {
    declined = reason;
    outcome.verdict = CaseOutcome::skip;
    outcome.reason = reason.what();
  } catch (...) {
    outcome.failure = report_failure(request.seq, judges_ ? FailurePhase::judge : FailurePhase::run);
  }
  if (!outcome.failure) {
    set_current_phase(case_phase::kBarrier);
    const PhaseTimer timer(outcome, case_phase::kBarrier);
    try {
      meet_others(request.seq, request.seq, declined ? declined->place() : "");
    } catch (...) {
      outcome.failure = report_failure(request.seq, FailurePhase::barrier);
      outcome.declined = declined.has_value();
    }
    if (outcome.declined) {
      outcome.verdict.reset();
      outcome.failure = failure_alone(*declined, *outcome.failure);
    }
  }
  set_current_phase(case_phase::kReport);
  if (outcome.failure && (outcome.history = parts_.runner.history())) {
    outcome.history->rank = outcome.rank;
    outcome.history->left = outcome.failure->phase != FailurePhase::run;
  }
  outcome.hygiene = measure_hygiene(outcome.rank);
  if (parts_.device.is_cuda()) {
    outcome.hygiene.gpu_kib = static_cast<std::int64_t>(cuda_device().memory().reserved_bytes / 1024);
  }
  write_fence(request.seq);
  if (parts_.environment.rank != 0) parts_.faults.reach(Fault::Phase::result);  // rank 0: while it writes the result
  messages_.to_rank0(CaseDone{request.seq, std::move(outcome)});
  set_current_phase(case_phase::kIdle);
  parts_.faults.reach(Fault::Phase::idle);
}

template <typename Command>
std::optional<Command> RankCompute::wait_for(std::int64_t seq, std::optional<Clock::time_point> deadline,
                                             const char* ended) {
  for (;;) {
    const std::optional<ComputeCommand> command = messages_.receive_until(deadline);
    if (!command) return std::nullopt;
    exiting_ = std::holds_alternative<ExitCommand>(*command);
    const auto* const found = std::get_if<Command>(&*command);
    // A BeginCommand with another seq is an old one, of a case for which this rank failed to reset.
    const bool ours = found != nullptr && found->seq == seq;
    if (exiting_ || (ours && !found->go)) throw CommError(CommError::Kind::aborted, ended);
    if (ours) return *found;
  }
}

void RankCompute::run_case(const protocol::RunRequest& request, RankOutcome& outcome) {
  {
    set_current_phase(case_phase::kReset);
    const PhaseTimer timer(outcome, case_phase::kReset);
    parts_.baseline.restore();
    parts_.runner.reset(parts_.device);
  }
  parts_.faults.start_case(request.id, request.seq);
  set_current_phase(case_phase::kBegin);
  messages_.to_rank0(CaseReset{outcome.rank, request.seq, parts_.runner.lost_groups()});
  const auto begin = wait_for<BeginCommand>(request.seq, {}, "the case ended before it began");
  parts_.faults.reach(Fault::Phase::before);
  if (!request.call.is_null()) return run_call(request, begin->renew_groups, outcome);

  // Every rank parses the case itself, so that cases and ranks share nothing.
  const Case posed = parse_case(request.case_json, "case");
  const Division division = division_of(posed);
  const int group = group_of_rank(division, parts_.environment.rank);
  const Case c = case_of_group(posed, group);
  use_threads_for(c, parts_.environment.local_world_size);
  outcome.backend = parts_.runner.backend(c, parts_.device);
  const auto skip = [&outcome](std::string reason) {
    outcome.verdict = CaseOutcome::skip;
    outcome.reason = std::move(reason);
  };
  // Ranks skip the case together, whichever group's part of it is refused.
  for (int any = 0; any < posed.group; ++any) {
    std::string reason = parts_.runner.skip_reason(case_of_group(posed, any), parts_.device);
    if (!reason.empty()) return skip(std::move(reason));
  }
  set_deadline();
  const CpGroups groups = groups_of_case(parts_.groups.get(), division);
  division_ = division;
  set_deadline();
  RunOptions options;
  options.id = request.id;
  options.group_suffix = group_suffix(group);
  options.world_rank = parts_.environment.rank;
  options.device = parts_.device;
  options.deadline = deadline_;
  options.bound_factor = request.options.bound_factor.value_or(1);
  if (request.options.dump_dir) options.dump_dir = *request.options.dump_dir;
  options.keep_judged = request.options.diagnosis_ms && parts_.runner.diagnoses();
  options.reference_cache = request.options.reference_cache;
  options.shares_gpus = parts_.gpu.shared_gpus > 0;
  options.ranks_on_gpu = parts_.gpu.ranks_on_it;
  if (request.options.perf) {
    options.perf = {.warmup = request.options.perf->warmup,
                    .iterations = request.options.perf->iterations,
                    .graph = request.options.perf->graph};
    options.perf->deadline = deadline_;
    if (request.options.perf->trace_dir) {
      const std::filesystem::path folder = *request.options.perf->trace_dir;
      options.perf->trace = folder / (case_file_name(request.id) + options.group_suffix);
    }
  }
  options.on_phase = [&](std::string_view phase) {
    set_current_phase(phase);
    judges_ = std::ranges::count(kOfTheJudge, phase) > 0;
    if (outcome.rank == 0) messages_.to_rank0(CasePhase{request.seq, std::string{phase}});
  };
  WrongResults wrong(parts_.faults.wrong_tensors(), outcome.rank);
  if (wrong.any()) options.on_result = std::ref(wrong);
  RankReport report = parts_.runner.run(c, groups, options);
  wrong.name_missing();
  parts_.faults.reach(Fault::Phase::after);
  judged_ = report.judged;
  take_report(std::move(report), outcome);
}

void RankCompute::run_call(const protocol::RunRequest& request, bool renew_groups, RankOutcome& outcome) {
  outcome.backend = parts_.runner.backend({}, parts_.device);
  set_deadline();
  RunOptions options;
  options.id = request.id;
  options.device = parts_.device;
  options.deadline = deadline_;
  set_current_phase(kCall);
  if (outcome.rank == 0) messages_.to_rank0(CasePhase{request.seq, kCall});
  CallReport report;
  {
    const PhaseTimer timer(outcome, kCall);
    report = parts_.runner.run_call(request.call, options, renew_groups);
  }
  parts_.faults.reach(Fault::Phase::after);
  outcome.verdict = CaseOutcome::pass;
  outcome.value.value = std::move(report.value);
  outcome.remarks = std::move(report.remarks);
}

void RankCompute::handle(const DiagnoseCommand& command) {
  DiagnosisDone done;
  done.seq = command.seq;
  done.outcome.rank = parts_.environment.rank;
  set_current_phase(case_phase::kDiagnosis);
  auto phase = FailurePhase::run;
  std::optional<Declined> declined;
  try {
    try {
      done.diagnosis = diagnose(command);
    } catch (const Declined& reason) {
      declined = reason;
      if (done.outcome.rank == 0) {
        done.diagnosis.emplace().cause =
            fmt::format("the code under test refused a question of the diagnosis: {}", reason.what());
      }
    }
    phase = FailurePhase::barrier;
    meet_others(command.seq, kDiagnosisTag, declined ? declined->place() : "");
  } catch (const ControlPlaneError&) {
    throw;
  } catch (...) {
    done.outcome.failure = report_failure(command.seq, phase);
    if (declined) done.outcome.failure = failure_alone(*declined, *done.outcome.failure);
  }
  judged_.reset();
  write_fence(command.seq);
  messages_.to_rank0(done);
  set_current_phase(case_phase::kIdle);
}

std::optional<Diagnosis> RankCompute::diagnose(const DiagnoseCommand& command) {
  const auto start = Clock::now();
  try {
    return diagnose(command, start, /*own_dtype=*/false);
  } catch (const Declined& reason) {
    if (judged_->c.dtype == DType::fp32) throw;
    // It may have been the same case in fp32.
    meet_others(command.seq, kDiagnosisTag, reason.place());
    return diagnose(command, start, /*own_dtype=*/true);
  }
}

std::optional<Diagnosis> RankCompute::diagnose(const DiagnoseCommand& command, Clock::time_point start,
                                               bool own_dtype) {
  const int rank = parts_.environment.rank;
  const milliseconds limit = std::min(milliseconds(command.limit_ms), kLongestCase);
  deadline_ = start + limit;  // the driver waits longer, to leave time for the abort and the answer
  if (rank == 0) messages_.to_rank0(CasePhase{command.seq, case_phase::kDiagnosis});
  parts_.faults.reach(Fault::Phase::diagnosis);
  const CpGroups groups = groups_of_case(parts_.groups.get(), division_);
  set_deadline();
  diagnosis::Settings settings;
  settings.deadline = start + limit * 3 / 4;  // leaves time to answer the last question
  // So a busy machine gives the same answers.
  settings.cpu_limit = has_diagnosed_ ? limit / 4 : limit / 2;
  settings.limit = limit;
  settings.known = known_mistakes_;
  settings.own_dtype = own_dtype;
  settings.on_phase = [](std::string_view question) {
    set_current_phase(fmt::format("{}: {}", case_phase::kDiagnosis, question));
  };
  const at::NoGradGuard no_grad;
  Diagnosis found = parts_.runner.diagnose(*judged_, groups, settings, deadline_);
  has_diagnosed_ = true;
  if (groups.cp->rank() != 0) return std::nullopt;
  found.ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  return found;
}

void RankCompute::set_deadline() const {
  for (const auto& communicator : communicators()) communicator->set_deadline(deadline_);
}

void RankCompute::meet_others(std::int64_t seq, std::int64_t tag, const std::string& declined) {
  const CaseArrived arrived{parts_.environment.rank, seq, parts_.groups.get().cp->begun(), declined};
  // A message to rank 0 and its answer cost less than a barrier of the communicators, which wakes one of their threads.
  // Ranks that have declined the case may use no communicator, since others may not have.
  if (!arrived.begun.empty() || !declined.empty()) return wait_for_leave(arrived);
  for (const auto& communicator : communicators()) communicator->checked_barrier(tag, time_left());
}

void RankCompute::wait_for_leave(const CaseArrived& arrived) {
  parts_.faults.reach(Fault::Phase::inside);
  const PendingOperationGuard guard("barrier of all ranks after the case");
  const milliseconds limit = time_left();
  const Clock::time_point deadline = Clock::now() + limit;
  messages_.to_rank0(arrived);
  const auto leave =
      wait_for<LeaveCommand>(arrived.seq, deadline, "the case was ended before every rank had finished it");
  if (leave && leave->difference.empty()) return;
  throw CommError(leave ? CommError::Kind::failed : CommError::Kind::timeout,
                  fmt::format("rank {}: barrier after the case: {}", arrived.rank,
                              leave ? leave->difference : fmt::format("timed out after {} ms", limit.count())));
}

std::vector<std::shared_ptr<Communicator>> RankCompute::communicators() const {
  const CpGroups all = parts_.groups.get();
  const CpGroups of_case = division_.empty() ? CpGroups{} : groups_of_case(all, division_);
  std::vector<std::shared_ptr<Communicator>> out;
  for (const CpGroups& groups : {of_case, all}) {
    for (const auto& communicator : {groups.cp, groups.inner, groups.outer}) {
      if (communicator) out.push_back(communicator);
    }
  }
  return out;
}

milliseconds RankCompute::time_left() const {
  return std::max(std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now()), kShortestBarrier);
}

Failure RankCompute::report_failure(std::int64_t seq, FailurePhase phase) {
  const CaughtError caught = describe_current_exception(phase);
  messages_.to_rank0(CaseFailing{seq});
  // Stack traces are left out if they add nothing: an aborted rank names its operation, and a library names what it
  // refuses. Resolving them would delay the result.
  const FailureKind kind = caught.failure.kind;
  if (kind == FailureKind::exception || kind == FailureKind::timeout) return with_stack_trace(caught);
  return caught.failure;
}

void RankCompute::handle(const RebuildCommand& command) {
  Rebuilt rebuilt{parts_.environment.rank, command.generation, ""};
  const auto deadline = Clock::now() + kRebuildLimit;
  parts_.faults.set_lonely_collective({});
  try {
    // The old communicators must have finished all work, on the device and in the memory of other ranks, before new
    // ones are made.
    if (!parts_.groups.take(command.generation, deadline)) {
      throw std::runtime_error("the abort of the old communicators has not finished");
    }
    const std::string why_not = parts_.runner.reconnect_obstacle();
    rebuilt.declined = !why_not.empty();
    if (rebuilt.declined) throw std::runtime_error(why_not);
    connect(command.generation, std::chrono::duration_cast<milliseconds>(deadline - Clock::now()));
  } catch (const std::exception& e) {
    rebuilt.error = e.what();
  }
  messages_.to_rank0(rebuilt);
}

}  // namespace cp_pool
