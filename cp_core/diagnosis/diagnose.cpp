#include "cp_core/diagnosis/diagnose.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "cp_core/diagnosis/explanation.h"
#include "cp_core/diagnosis/hypotheses.h"
#include "cp_core/diagnosis/seen_keys.h"

namespace cp_pool::diagnosis {
namespace {

// A time of so many first steps lets a diagnosis ask all that it needs.
constexpr int kStepsOfADiagnosis = 10;

}  // namespace

Diagnosis diagnose(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups,
                   const Settings& settings) {
  if (auto confirmed = confirm(implementation, judged, groups, settings)) return std::move(*confirmed);
  const auto start = std::chrono::steady_clock::now();
  const auto look = [&] { return find_seen_keys(implementation, judged, groups, settings); };
  Diagnosis diagnosis = explain(implementation, judged, look, groups, settings);
  if (groups.cp->rank() != 0) return {};
  if (settings.deadline - start < judged.first_step && settings.limit.count() > 0) {
    diagnosis.evidence.push_back(fmt::format(
        "a step of this case took {:.1f} s at first and {:.1f} s again, so not every question could be asked in "
        "{:g} s; --diagnosis-time {}",
        judged.first_step.count(), judged.repeated_step.count(), std::chrono::duration<double>(settings.limit).count(),
        rounded_up(judged.first_step * kStepsOfADiagnosis)));
  }
  return diagnosis;
}

}  // namespace cp_pool::diagnosis
