// The decision on a case that has a result, and the diagnosis of a failure.
#include <utility>

#include <fmt/format.h>

#include "driver/core/figures.h"
#include "driver/pool/pool_machine.h"
#include "worker/protocol/diagnosis_intake.h"

namespace cp_pool {

namespace {

constexpr std::chrono::milliseconds kDeathAfterResult{200};

}  // namespace

// --- Judging ---

// Turns a pass into an error if its own figures contradict it. Then the pool is retired, since its next results cannot
// be trusted either.
void PoolMachine::reject_false_pass() {
  Conclusion& out = current_.conclusion;
  if (out.outcome != CaseOutcome::pass) return;
  const bool promised =
      current_.what.named->payload->has_figures() && capabilities_.value("figures", nlohmann::json()) == true;
  std::string why = refutation_of_pass(*current_.result, setup_.pool.world_size, promised);
  if (why.empty()) return;
  correct_checks(*current_.result);
  current_.result->perf.reset();
  out.outcome = CaseOutcome::error;
  out.reason = why;
  current_.rejected = true;
  out.retirement = {RetireReason::protocol_break, std::move(why)};
}

// In a run that takes times, a pass without times becomes an error, and a pass that is slower than --max-ratio allows
// becomes a fail.
void PoolMachine::check_times() {
  Conclusion& out = current_.conclusion;
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
  if (auto growth = excess_growth()) return Retirement{RetireReason::hygiene, *std::move(growth)};
  return std::nullopt;
}

std::optional<std::string> PoolMachine::excess_growth() {
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

// Returns how the pool was lost; nullopt: it was not. `when` begins the text, unless the worker broke the protocol.
std::optional<Retirement> PoolMachine::loss(std::string_view when) {
  if (any_ended()) {
    // If the pool died right after its last result and before it started the next case, the last case is taken for the
    // cause.
    const bool after_result = cases_ > 0 && !current_.started && now_ - last_result_ < kDeathAfterResult;
    return Retirement{after_result ? RetireReason::died_after_result : RetireReason::crash,
                      fmt::format("{}{}", when, describe_deaths())};
  }
  if (current_.protocol_break) return Retirement{RetireReason::protocol_break, *current_.protocol_break};
  if (facts_.ranks.stdin_broken) {
    return Retirement{RetireReason::stdin_broken, fmt::format("{}rank 0 closed its stdin", when)};
  }
  if (!facts_.ranks.stdout_closed) return std::nullopt;
  return Retirement{RetireReason::protocol_break, fmt::format("{}rank 0 closed its stdout", when)};
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
  read_messages();
  if (current_.diagnosis || current_.protocol_break || facts_.stop.abandon_running() || facts_.pausing) {
    return end_diagnosis();
  }
  if (lost()) return begin_to_drain(State::diagnosis_draining);
  emit_progress();
}

void PoolMachine::end_diagnosis() {
  Conclusion& out = current_.conclusion;
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
