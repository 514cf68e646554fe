// The diagnosis of a failed case. The worker looks for the cause after it has sent the result. Whatever comes of the
// diagnosis, the outcome stays.
#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "cases/case_phases.h"
#include "driver/pool/case_request.h"
#include "driver/pool/pool.h"
#include "worker/protocol/diagnosis_intake.h"

namespace cp_pool {

namespace {

// Why no worker can diagnose a failure of the case, as a sentence; empty if it can.
std::string why_undiagnosed(const Case& c) {
  if (c.replicated > 0) return "cases with replicated tokens are not diagnosed, because such a row has several owners";
  if (c.group > 1)
    return "cases of several groups of ranks are not diagnosed, because each group solves its own problem";
  return {};
}

}  // namespace

// Whether a failure of the case is to be diagnosed. A case that runs several times is diagnosed once, and of the cases
// that a search tries on its way to the smallest one only the smallest.
bool Pool::wants_diagnosis(const NamedCase& named) const {
  return run_->config.diagnosis && !named.replay && !is_to_fail(named.expected) &&
         named.search != SearchStep::smaller && lists(capabilities_, "options", "diagnosis_ms") &&
         (named.runs == 1 || !run_->diagnosed.contains(named.id));
}

bool Pool::asks_why(const NamedCase& named) const {
  return wants_diagnosis(named) && why_undiagnosed(named.c).empty();
}

void Pool::say_why_undiagnosed(const NamedCase& named, Attempt& attempt) const {
  if (attempt.outcome != CaseOutcome::fail || !wants_diagnosis(named)) return;
  if (std::string why = why_undiagnosed(named.c); !why.empty()) {
    attempt.diagnosis = protocol::unknown_diagnosis(std::move(why));
  }
}

// Whether somebody waits for this diagnosis. Others are ignored: they say nothing against the worker's results.
bool Pool::takes_diagnosis(const Outstanding& current, const protocol::DiagnosisEvent& event) {
  return current.asks_why && current.result && current.result->diagnosing && event.seq == current.seq &&
         !current.diagnosis;
}

// Waits for the diagnosis and puts it into `attempt`. Returns why the pool cannot be used again; nullopt if the
// diagnosis gives no reason.
asio::awaitable<std::optional<Retirement>> Pool::diagnose(Outstanding& current, const CaseStarted& started,
                                                          Attempt& attempt) {
  // A case that may be retried counts as a failure only when it is not retried.
  if (!current.may_be_tried_again) {
    run_->count_failure();
    attempt.counted = true;
  }
  group_->reopen_tails();  // the stderr tail then includes the last words of a rank that dies during the diagnosis
  current.progress.reach(case_phase::kDiagnosis);
  co_await wait_for_diagnosis(current, started);
  std::optional<Retirement> retirement = take_diagnosis(current, started, attempt);
  if (retirement && retirement->reason == RetireReason::timeout) co_await ask_for_stacks();
  if (!current.diagnosis) attempt.stderr_tails = group_->tails();
  co_return retirement;
}

asio::awaitable<void> Pool::wait_for_diagnosis(Outstanding& current, const CaseStarted& started) {
  const auto over = [&] {
    return current.diagnosis || current.protocol_break || run_->stop.abandon_running() || host_.pausing();
  };
  const auto limit = Clock::now() + diagnosis_time_of(run_->config) + run_->config.diagnosis_grace;
  while (Clock::now() < limit) {
    take_messages(current);
    if (over()) co_return;
    if (lost()) co_return co_await drain(current);
    tell_progress(current, started);
    co_await wakeup_.wait_until(std::min(limit, current.next()));
  }
}

std::optional<Retirement> Pool::take_diagnosis(const Outstanding& current, const CaseStarted& started,
                                               Attempt& attempt) {
  if (current.diagnosis) {
    attempt.diagnosis = current.diagnosis->diagnosis;
    if (current.diagnosis->healthy) return std::nullopt;
    return Retirement{RetireReason::unhealthy,
                      fmt::format("its worker asked for that after the diagnosis of {}", started.id)};
  }
  std::optional<Retirement> retirement;
  std::string why;
  if (group_->any_exited()) {
    why = fmt::format("the diagnosis failed: {}", describe_deaths());
  } else if (current.protocol_break) {
    why = fmt::format("the diagnosis failed: {}", *current.protocol_break);
  } else if (lost()) {
    why = fmt::format("the diagnosis failed: rank 0 closed its {}", group_->stdin_broken() ? "stdin" : "stdout");
  } else if (run_->stop.abandon_running()) {
    why = "the run was stopped before the diagnosis had ended";
  } else if (host_.pausing()) {
    why = "the run was paused during the diagnosis";
    retirement = Retirement{RetireReason::paused, why};
  } else {
    why = fmt::format("the diagnosis ran out of its {:g} s",
                      std::chrono::duration<double>(diagnosis_time_of(run_->config)).count());
    retirement = Retirement{RetireReason::timeout, fmt::format("{}: {}", started.id, why)};
  }
  attempt.diagnosis = protocol::unknown_diagnosis(std::move(why));
  return retirement;
}

}  // namespace cp_pool
