// What changed from one run to another: `cp-pool diff` (docs/records.md says what counts as a change).
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cases/enum_names.h"
#include "cases/fields.h"
#include "driver/cli/history/compared_run.h"

namespace cp_pool {

enum class ChangeKind {
  new_failure,    // it fails, and did not
  fixed,          // it passes, and failed
  still_failing,  // it fails, and did
  flaky,          // it passes on a later try, or on some runs alone
  not_judged,     // nobody judged it, and somebody did
  slower,
  faster,
  error_grew,  // of a tensor, towards its bound
  skip_came,   // it is skipped, and was not
  skip_went,   // it was skipped, and is not
  added,       // the earlier run did not have it
  removed,     // the later run does not have it
};
template <>
inline constexpr std::array<std::pair<ChangeKind, std::string_view>, 12> kNames<ChangeKind>{
    {{ChangeKind::new_failure, "new-failure"},
     {ChangeKind::fixed, "fixed"},
     {ChangeKind::still_failing, "still-failing"},
     {ChangeKind::flaky, "flaky"},
     {ChangeKind::not_judged, "not-judged"},
     {ChangeKind::slower, "slower"},
     {ChangeKind::faster, "faster"},
     {ChangeKind::error_grew, "error-grew"},
     {ChangeKind::skip_came, "skip-came"},
     {ChangeKind::skip_went, "skip-went"},
     {ChangeKind::added, "added"},
     {ChangeKind::removed, "removed"}}};

// A case may have several.
struct Change {
  ChangeKind kind = ChangeKind::new_failure;
  std::string id;
  std::optional<CaseOutcome> before = std::nullopt;  // none: that run does not have it
  std::optional<CaseOutcome> after = std::nullopt;
  std::string reason = {};                   // of the later outcome; of a skip that went the earlier one
  std::string verdict = {};                  // of a failure that was triaged
  std::string tensor = {};                   // of an error
  std::optional<double> was = std::nullopt;  // milliseconds; of an error its part of the bound
  std::optional<double> is = std::nullopt;

  static constexpr auto fields() {
    return std::tuple{field("kind", &Change::kind),
                      field("id", &Change::id),
                      field("before", &Change::before),
                      field("after", &Change::after),
                      field("reason", &Change::reason, Presence::sparse),
                      field("verdict", &Change::verdict, Presence::sparse),
                      field("tensor", &Change::tensor, Presence::sparse),
                      field("was", &Change::was, Presence::sparse),
                      field("is", &Change::is, Presence::sparse)};
  }
};

// How much the times of cases that pass in both runs differ as a whole.
struct TimeDrift {
  std::size_t cases = 0;
  double ratio = 1;  // the median of later time / earlier time
  double noise = 1;  // a ratio that is this many times as large, or as small, is no noise

  static constexpr auto fields() {
    return std::tuple{field("cases", &TimeDrift::cases), field("ratio", &TimeDrift::ratio),
                      field("noise", &TimeDrift::noise)};
  }
};

struct RunDiff {
  std::vector<Change> changes;     // by kind, then by ID
  std::size_t common = 0;          // cases in both
  std::optional<TimeDrift> drift;  // none: no times are compared
  std::string why_no_figures;      // neither times nor errors are compared, as a sentence; empty: they are

  [[nodiscard]] std::size_t count(ChangeKind kind) const;
};

RunDiff diff_runs(const ComparedRun& before, const ComparedRun& after);

}  // namespace cp_pool
