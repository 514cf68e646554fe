// When pools and cases were, kept from the events of a run; timeline_svg.h draws it.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "driver/events.h"

namespace cp_pool {

// All times are milliseconds of the run's clock, since its beginning.
struct TimelineCase {
  std::string name;
  CaseOutcome outcome = CaseOutcome::not_run;
  Urgency urgency = Urgency::other;  // of an outcome that was expected another one
  std::string word = {};             // for the outcome: "xfail"
  double begin = 0;                  // when it was sent
  double end = 0;                    // when all was known of it
  double duration = 0;               // until its outcome was known, which a diagnosis follows
};

struct TimelinePool {
  PoolId id;
  int world_size = 0;
  double spawned = 0;
  std::optional<double> ready;    // none: it never was
  std::optional<double> retired;  // none: the run ended before
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
  // Events that do not say when they happened, of earlier versions, are passed over.
  void add(const Event& event);

  [[nodiscard]] const std::vector<TimelinePool>& pools() const { return pools_; }
  [[nodiscard]] const std::vector<TimelinePause>& pauses() const { return pauses_; }
  [[nodiscard]] double end() const { return end_; }                         // of the last event
  [[nodiscard]] std::size_t without_pool() const { return without_pool_; }  // cases that no pool ran

  // The pools, as indices, in lanes: those of a lane have one key and come one after another. Lanes are in the order of
  // world size, key and beginning.
  [[nodiscard]] std::vector<std::vector<std::size_t>> lanes() const;
  // When the pool was over: when it was retired, or at the end.
  [[nodiscard]] double end_of(const TimelinePool& pool) const { return pool.retired.value_or(end_); }

 private:
  void on(const PoolSpawned& event);
  void on(const PoolReady& event);
  void on(const PoolRetired& event);
  void on(const CaseStarted& event);
  void on(const CaseTried& event);
  void on(const CaseFinished& event);
  void on(const CaseReplayed&) {}  // its pool is drawn
  void on(const CaseVerdict&) {}
  void on(const RunPaused& event);
  TimelinePool* find(const PoolId& id);

  std::vector<TimelinePool> pools_;
  std::vector<TimelinePause> pauses_;
  std::map<std::size_t, double> running_;  // by index: when the case was sent
  double end_ = 0;
  std::size_t without_pool_ = 0;
};

}  // namespace cp_pool
