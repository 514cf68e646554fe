#include "cp_core/diagnosis/testing/diagnosed_on_threads.h"

#include <vector>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cp_core/builtin/builtin_implementation.h"
#include "cp_core/testing/ranks_on_threads.h"

namespace cp_pool::diagnosis::test {

Diagnosed diagnosed_on_threads(const Case& c, const std::function<std::unique_ptr<Implementation>()>& make,
                               const Settings& settings, const std::function<void(JudgedCase&)>& before) {
  Diagnosed result;
  std::vector<RankReport> reports(static_cast<std::size_t>(c.cp_size));
  std::vector<std::unique_ptr<Implementation>> ranks;
  ranks.reserve(reports.size());
  for (int rank = 0; rank < c.cp_size; ++rank) ranks.push_back(make());
  run_ranks(c.cp_size, [&](const CpGroups& groups, int rank) {
    const auto r = static_cast<std::size_t>(rank);
    RunOptions options;
    options.id = "suite/a_case";
    options.keep_judged = true;
    reports[r] = run_case(*ranks[r], c, groups, options);
  });
  for (const RankReport& report : reports) {
    if (report.outcome != CaseOutcome::fail || result.failed) continue;
    result.failed = true;
    result.reason = report.reason;
  }
  if (!result.failed) return result;
  run_ranks(
      c.cp_size,
      [&](const CpGroups& groups, int rank) {
        const at::NoGradGuard no_grad;
        const auto r = static_cast<std::size_t>(rank);
        JudgedCase judged = *reports[r].judged;
        if (before) before(judged);
        Diagnosis found = diagnose(*ranks[r], judged, groups, settings);
        if (rank == 0) result.diagnosis = std::move(found);
      },
      std::chrono::minutes(10));
  return result;
}

Diagnosed diagnosed(const Case& c, const Settings& settings) {
  return diagnosed_on_threads(c, [] { return std::make_unique<BuiltinImplementation>(); }, settings);
}

std::string text_of(const Diagnosis& diagnosis) {
  std::string text = fmt::format("{} {}: {}", to_string(diagnosis.certainty), diagnosis.id, diagnosis.cause);
  if (!diagnosis.others.empty()) text += fmt::format(" [or {}]", fmt::join(diagnosis.others, ", "));
  text += fmt::format(" (explains {})", fmt::join(diagnosis.explains, ", "));
  for (const std::string& sentence : diagnosis.evidence) text += "\n    " + sentence;
  return text;
}

}  // namespace cp_pool::diagnosis::test
