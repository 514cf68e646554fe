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
  // pool that starts: since when, on which pool and ranks, in which phase. The oldest is the first.
  [[nodiscard]] std::vector<std::string> lines(Clock::time_point now) const;

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
  };

  std::size_t expected_ = 0;  // cases; 0: nobody knows
  std::size_t finished_ = 0;
  std::map<std::string, NamedPool> pools_;
  std::map<std::size_t, RunningCase> cases_;  // by index
};

}  // namespace cp_pool
