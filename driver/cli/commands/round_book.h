// What the rounds of `cp-pool watch` have come to.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "driver/events.h"
#include "driver/run.h"

namespace cp_pool {

class RoundBook : public EventSink {
 public:
  // The order of the next round: the cases that failed when they were last judged, then the others, each in their
  // order.
  [[nodiscard]] std::vector<NamedCase> failures_first(std::vector<NamedCase> cases) const;

  // A round begins; its events follow.
  void begin() { round_ = {}; }
  void on_event(const Event& event) override;

  // The round has judged what it could. Returns "2 failed, 101 passed, 3 skipped in 12.3 s (fixed: 1, new failures:
  // 0)"; what is in parentheses compares with the last complete round, if there was one.
  std::string complete();
  // The round was stopped before its end. What it has judged decides the order of the next one.
  void stop() { take_over(); }

 private:
  struct Round {
    std::set<std::string> failed;  // IDs; of a case that runs several times, if one of the runs failed
    std::set<std::string> passed;  // or skipped
    std::set<std::string> others;  // that nobody judged
    std::optional<RunFinished> finished;
  };
  void take_over();

  Round round_;
  std::set<std::string> failing_;                   // as each case was last judged
  std::optional<std::set<std::string>> last_time_;  // those after the last complete round
};

}  // namespace cp_pool
