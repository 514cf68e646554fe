// The times of pools and cases; timeline_svg.h draws them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "driver/log/run_report.h"

namespace cp_pool {

// All times are milliseconds of the run's clock, from its beginning.
struct TimelineCase {
  std::string name;
  CaseOutcome outcome = CaseOutcome::not_run;
  Urgency urgency = Urgency::other;  // an expected failure has another urgency than a failure
  std::string word = {};             // outcome_word: "xfail"
  double begin = 0;                  // when it was sent
  double end = 0;                    // when all of it was known, the diagnosis included
  double duration = 0;               // until its outcome was known; a diagnosis follows
};

struct TimelinePool {
  PoolId id;
  int world_size = 0;
  double spawned = 0;
  std::optional<double> ready;    // nullopt if it never was
  std::optional<double> retired;  // nullopt if the run ended before
  RetireReason reason = RetireReason::finished;
  std::string detail;
  std::vector<TimelineCase> cases;  // in the order in which they finished
};

struct TimelinePause {
  double at = 0;
  double length = 0;
};

class Timeline {
 public:
  // Leaves out what has no time, as in files of earlier versions.
  explicit Timeline(const RunReport& run);

  [[nodiscard]] const std::vector<TimelinePool>& pools() const { return pools_; }
  [[nodiscard]] const std::vector<TimelinePause>& pauses() const { return pauses_; }
  [[nodiscard]] double end() const { return end_; }                         // time of the last event
  [[nodiscard]] std::size_t without_pool() const { return without_pool_; }  // number of cases that no pool ran

  // Returns the pools, as indices, in lanes. The pools of a lane have one key and follow each other. Lanes are in the
  // order of world size, key and beginning.
  [[nodiscard]] std::vector<std::vector<std::size_t>> lanes() const;
  // Returns when the pool was retired, or the end of the run.
  [[nodiscard]] double end_of(const TimelinePool& pool) const { return pool.retired.value_or(end_); }

 private:
  std::vector<TimelinePool> pools_;
  std::vector<TimelinePause> pauses_;
  double end_ = 0;
  std::size_t without_pool_ = 0;
};

}  // namespace cp_pool
