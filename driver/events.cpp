#include "driver/events.h"

namespace cp_pool {

std::string_view to_string(CaseOutcome outcome) {
  switch (outcome) {
    case CaseOutcome::pass:
      return "pass";
    case CaseOutcome::fail:
      return "fail";
    case CaseOutcome::skip:
      return "skip";
    case CaseOutcome::error:
      return "error";
    case CaseOutcome::timeout:
      return "timeout";
    case CaseOutcome::crash:
      return "crash";
    case CaseOutcome::infra:
      return "infra";
    case CaseOutcome::cancelled:
      return "cancelled";
    case CaseOutcome::not_run:
      return "not-run";
  }
  return "unknown";
}

bool is_failure(CaseOutcome outcome) {
  return outcome == CaseOutcome::fail || outcome == CaseOutcome::error || outcome == CaseOutcome::timeout ||
         outcome == CaseOutcome::crash;
}

std::string_view to_string(RetireReason reason) {
  switch (reason) {
    case RetireReason::finished:
      return "finished";
    case RetireReason::start_failed:
      return "start_failed";
    case RetireReason::timeout:
      return "timeout";
    case RetireReason::crash:
      return "crash";
    case RetireReason::died_after_result:
      return "died_after_result";
    case RetireReason::unhealthy:
      return "unhealthy";
    case RetireReason::protocol_break:
      return "protocol_break";
    case RetireReason::stdin_broken:
      return "stdin_broken";
    case RetireReason::max_cases:
      return "max_cases";
    case RetireReason::hygiene:
      return "hygiene";
    case RetireReason::paused:
      return "paused";
    case RetireReason::interrupted:
      return "interrupted";
  }
  return "unknown";
}

std::string_view to_string(RunStopping::Reason reason) {
  switch (reason) {
    case RunStopping::Reason::interrupted:
      return "interrupted";
    case RunStopping::Reason::killed:
      return "killed";
    case RunStopping::Reason::global_timeout:
      return "global_timeout";
  }
  return "unknown";
}

}  // namespace cp_pool
