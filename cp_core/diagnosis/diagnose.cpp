#include "cp_core/diagnosis/diagnose.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "cp_core/diagnosis/explanation.h"
#include "cp_core/diagnosis/hypotheses.h"
#include "cp_core/diagnosis/seen_keys.h"

namespace cp_pool::diagnosis {
namespace {

// Observing the mask may take 1 / kShareOfSeenKeys of the time.
constexpr int kShareOfSeenKeys = 3;
// A time of so many first steps lets a diagnosis ask all that it needs.
constexpr int kStepsOfADiagnosis = 10;

}  // namespace

Diagnosis diagnose(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups,
                   const Settings& settings) {
  if (auto confirmed = confirm(implementation, judged, groups, settings)) return std::move(*confirmed);
  const auto start = std::chrono::steady_clock::now();
  Settings of_seen = settings;
  if (settings.deadline != std::chrono::steady_clock::time_point::max()) {
    of_seen.deadline = start + (settings.deadline - start) / kShareOfSeenKeys;
  }
  SeenKeys seen = find_seen_keys(implementation, judged, groups, of_seen);
  Diagnosis diagnosis = explain(implementation, judged, &seen, groups, settings);
  if (groups.cp->rank() != 0) return {};
  if (seen.wrong) {
    diagnosis.pairs = std::move(seen.pairs);
    diagnosis.picture = std::move(seen.picture);
  }
  if (settings.deadline - start < judged.first_step && settings.limit.count() > 0) {
    diagnosis.evidence.push_back(fmt::format(
        "a step of this case took {:.1f} s at first and {:.1f} s again, so not every question could be asked in "
        "{:g} s; --diagnosis-time {}",
        judged.first_step.count(), judged.repeated_step.count(), std::chrono::duration<double>(settings.limit).count(),
        rounded_up(judged.first_step * kStepsOfADiagnosis)));
  }
  if (!seen.why_not.empty()) diagnosis.evidence.push_back("the keys that each query saw are unknown: " + seen.why_not);
  std::ranges::move(seen.notes, std::back_inserter(diagnosis.evidence));
  return diagnosis;
}

}  // namespace cp_pool::diagnosis
