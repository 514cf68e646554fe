// Describes what is running at the moment, and answers requests for that, which SIGUSR1 or the key t on the terminal
// make at any time.
#pragma once

#include <algorithm>
#include <csignal>
#include <functional>
#include <termios.h>

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
  [[nodiscard]] bool answered() const {
    return std::ranges::none_of(cases_, [](const auto& entry) { return entry.second.asked; });
  }

 private:
  struct RunningPool {
    PoolSpawned event;
    Clock::time_point since;
    bool ready = false;
  };
  struct RunningCase {
    CaseStarted event;
    Clock::time_point since;
    std::string phase = {};  // the phase that was reported last
    Clock::time_point told;
    std::vector<RankStanding> ranks = {};  // the latest answer
    Clock::time_point answered;
    bool asked = false;  // an answer is awaited
  };

  std::size_t expected_ = 0;  // number of cases; 0 if unknown
  std::size_t finished_ = 0;
  std::map<PoolId, RunningPool> pools_;
  std::map<std::size_t, RunningCase> cases_;  // by index
};

// A listener that looks for requests at every tick of the run's clock. It has the running cases' ranks asked for their
// position, and answers when they have replied or after kPatience. Requests are answered one at a time.
class StatusRequests : public EventSink {
 public:
  // `show` is called for each line of an answer. `keys` says that stdin has no other use, so that keys may be read from
  // it if it is the terminal of this process group.
  StatusRequests(std::function<void(const std::string& line)> show, bool keys);
  StatusRequests(const StatusRequests&) = delete;
  StatusRequests& operator=(const StatusRequests&) = delete;
  ~StatusRequests() override;  // restores the signal action and the terminal

  void on_event(const Event& event) override;
  void on_tick() override;

  // The function for RunConfig::status_requests. If it is never called, no ranks are asked, and answers do not wait for
  // them.
  std::uint64_t take_requests();

 private:
  void take_keys();
  void restore_terminal();
  void answer();

  std::function<void(const std::string& line)> show_;
  bool keys_;
  RunningNow running_;
  std::uint64_t requests_ = 0;
  bool open_ = false;      // a request is waiting for its answer
  bool taken_up_ = false;  // the ranks have been asked for it
  Clock::time_point limit_;
  struct sigaction before_{};
  std::optional<termios> terminal_;  // the settings to restore, while the terminal passes keys on without echo
};

}  // namespace cp_pool
