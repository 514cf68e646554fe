#include "cp_core/diagnosis/diagnose.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "cp_core/diagnosis/hypotheses.h"
#include "cp_core/diagnosis/seen_keys.h"

namespace cp_pool::diagnosis {
namespace {

// Observing the mask may take 1 / kShareOfSeenKeys of the time.
constexpr int kShareOfSeenKeys = 3;

}  // namespace

Diagnosis diagnose(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups,
                   const Settings& settings) {
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
  if (!seen.why_not.empty()) diagnosis.evidence.push_back("the keys that each query saw are unknown: " + seen.why_not);
  std::ranges::move(seen.notes, std::back_inserter(diagnosis.evidence));
  return diagnosis;
}

}  // namespace cp_pool::diagnosis
