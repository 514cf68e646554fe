#include "worker/rank_outcome.h"

#include <cstdio>
#include <string>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "worker/protocol/line_framer.h"

namespace cp_pool {

void take_report(RankReport report, RankOutcome& outcome) {
  outcome.verdict = report.outcome;
  outcome.can_diagnose = report.judged != nullptr;
  for (Check& check : report.checks) check.rank = outcome.rank;
  report.timings_ms.merge(outcome.timings_ms);
  CaseReport& part = report;
  static_cast<CaseReport&>(outcome) = std::move(part);
}

Failure failure_alone(const Declined& declined, const Failure& met) {
  Failure alone = declined.alone();
  if (met.kind == FailureKind::communication) alone.summary += fmt::format(" ({})", met.summary);
  return alone;
}

void write_fence(std::int64_t seq) {
  std::fflush(nullptr);
  const std::string fence = protocol::format_fence(seq);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, fence.data(), fence.size());
}

}  // namespace cp_pool
