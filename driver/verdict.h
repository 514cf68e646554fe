// The kind of a failure, as replays of it show (driver/triage/).
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cases/enum_names.h"
#include "cases/fields.h"

namespace cp_pool {

enum class VerdictKind {
  real,         // the case fails alone on a fresh pool
  state_leak,   // it fails after one other case (the culprit) on the same pool
  warm_only,    // it fails after several cases of its pool, but after none of them alone
  flaky,        // it fails in some replays and passes in others
  infra,        // the machine failed, and not what ran on it
  unknown,      // the replays contradict each other
  not_triaged,  // the budget was spent before it could be decided
};
template <>
inline constexpr std::array<std::pair<VerdictKind, std::string_view>, 7> kNames<VerdictKind>{
    {{VerdictKind::real, "REAL"},
     {VerdictKind::state_leak, "STATE_LEAK"},
     {VerdictKind::warm_only, "WARM_ONLY"},
     {VerdictKind::flaky, "FLAKY"},
     {VerdictKind::infra, "INFRA"},
     {VerdictKind::unknown, "unknown"},
     {VerdictKind::not_triaged, "not triaged"}}};

struct Verdict {
  VerdictKind kind = VerdictKind::not_triaged;
  std::optional<std::string> culprit;  // ID of the case that leaks state; only of a state leak
  int k = 0;                           // how many of the n deciding replays failed
  int n = 0;
  std::vector<std::string> evidence;  // sentences, in the order of the replays

  static constexpr auto fields() {
    return FieldList{field("kind", &Verdict::kind, Presence::required), field("culprit", &Verdict::culprit),
                     field("k", &Verdict::k), field("n", &Verdict::n), field("evidence", &Verdict::evidence)};
  }
};

// The budget for all replays of a run: triage ends at the limit that is reached first.
struct TriageLimits {
  int replays = 20;
  std::chrono::milliseconds time{600'000};
};

}  // namespace cp_pool
