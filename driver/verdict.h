// What reruns of a failure have told of its kind (driver/triage/).
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cases/enum_names.h"
#include "cases/fields.h"

namespace cp_pool {

enum class VerdictKind {
  real,         // it fails alone on a fresh pool
  state_leak,   // it fails after one other case, the culprit
  warm_only,    // it fails after several cases of its pool, and after no single one
  flaky,        // it fails now and then
  infra,        // the machine failed
  unknown,      // what the reruns told contradicts itself
  not_triaged,  // the budget was spent before
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
  std::optional<std::string> culprit;  // the ID of a case, of a state leak
  int k = 0;                           // of n replays that decide it: how many failed
  int n = 0;
  std::vector<std::string> evidence;  // sentences, in the order in which it came

  static constexpr auto fields() {
    return std::tuple{field("kind", &Verdict::kind, Presence::required), field("culprit", &Verdict::culprit),
                      field("k", &Verdict::k), field("n", &Verdict::n), field("evidence", &Verdict::evidence)};
  }
};

// Of the triage of a run, whichever comes first.
struct TriageLimits {
  int replays = 20;
  std::chrono::milliseconds time{600'000};
};

}  // namespace cp_pool
