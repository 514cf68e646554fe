// Keeps the outcomes of the rounds of `cp-pool watch`, and compares each round with the one before.
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
  // Returns the cases in the order of the next round: first those that failed when they were last judged, then the
  // others. Both parts keep their order.
  [[nodiscard]] std::vector<Item> failures_first(std::vector<Item> cases) const;

  // Begins a round, whose events follow.
  void begin() { round_ = {}; }
  void on_event(const Event& event) override;

  // Ends a round that came to its end. Returns "2 failed, 101 passed, 3 skipped in 12.3 s (fixed: 1, new failures: 0)".
  // The part in parentheses compares with the last complete round, and is left out if there was none.
  std::string complete();
  // Ends a round that was stopped early. The cases that it judged still decide the order of the next round.
  void stop() { take_over(); }

 private:
  struct Round {
    std::set<std::string> failed;  // IDs; a case that runs several times is here if one of its runs failed
    std::set<std::string> passed;  // passed or skipped
    std::set<std::string> others;  // neither, because nobody judged them
    std::optional<RunFinished> finished;
  };
  void take_over();

  Round round_;
  std::set<std::string> failing_;                   // the cases that failed when they were last judged
  std::optional<std::set<std::string>> last_time_;  // `failing_` after the last complete round
};

}  // namespace cp_pool
