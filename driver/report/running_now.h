// Describes what is running at the moment, for requests during a run.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "driver/core/clock.h"
#include "driver/core/events.h"

namespace cp_pool {

class RunningNow : public EventSink {
 public:
  void on_event(const Event& event) override;

  // Returns "3 of 80 finished; 1 case running, 1 pool starting, 1 pool idle", then a line for each running case and
  // each starting pool, the oldest first: its age, its pool and ranks, and its phase. Below a case follow lines about
  // its ranks, if they have answered: "  ranks 0-6: in forward for 3.1 s".
  [[nodiscard]] std::vector<std::string> lines(Clock::time_point now) const;

  // Says that the ranks have been asked for their positions. Earlier answers are forgotten.
  void ask();
  // Returns true when all cases that were running at ask() have answered or ended.
  [[nodiscard]] bool answered() const;

 private:
  struct NamedPool {
    PoolId id;
    int ranks = 0;
    bool ready = false;
    Clock::time_point spawned;
    std::string pids;  // "12, 13"
  };
  struct RunningCase {
    std::string id;
    std::string pool;
    int attempt = 1;
    Clock::time_point since;
    std::string phase;  // the phase that was reported last
    Clock::time_point told;
    std::vector<RankStanding> ranks;  // the latest answer
    Clock::time_point answered;
    bool asked = false;  // an answer is awaited
  };

  std::size_t expected_ = 0;  // number of cases; 0 if unknown
  std::size_t finished_ = 0;
  std::map<std::string, NamedPool> pools_;
  std::map<std::size_t, RunningCase> cases_;  // by index
};

}  // namespace cp_pool
