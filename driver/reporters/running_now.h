// What runs at the moment, for whoever asks while a run goes on.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "driver/clock.h"
#include "driver/events.h"

namespace cp_pool {

class RunningNow : public EventSink {
 public:
  void on_event(const Event& event) override;

  // "3 of 80 finished; 1 case running, 1 pool starting, 1 pool idle", then a line for each case that runs and each
  // pool that starts: since when, on which pool and ranks, in which phase. The oldest is the first. Below a case where
  // its ranks stand, if that is known: "  ranks 0-6: in forward for 3.1 s".
  [[nodiscard]] std::vector<std::string> lines(Clock::time_point now) const;

  // Where ranks stand is asked now: what was known of it counts no more.
  void ask();
  // All cases that ran then have answered, or have ended.
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
    std::string phase;  // that was told last
    Clock::time_point told;
    std::vector<RankStanding> ranks;  // as was answered then
    Clock::time_point answered;
    bool asked = false;  // and the answer is awaited
  };

  std::size_t expected_ = 0;  // cases; 0: nobody knows
  std::size_t finished_ = 0;
  std::map<std::string, NamedPool> pools_;
  std::map<std::size_t, RunningCase> cases_;  // by index
};

}  // namespace cp_pool
