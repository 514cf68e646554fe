// Decides when a run gives up a key, because starting more pools for its cases makes no sense.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "driver/events.h"
#include "driver/pool/pool_machine.h"
#include "driver/run.h"

namespace cp_pool {

class KeyPatience {
 public:
  explicit KeyPatience(const RunConfig& config) : config_(config) {}

  void note_start();
  void note_failed_start(const StartFailure& failure);
  void note_outcome(CaseOutcome outcome);

  // Why no more pools of this key are started for this run, as a sentence; nullopt: pools are started.
  [[nodiscard]] const std::optional<std::string>& given_up() const { return given_up_; }
  // If the key is given up: whether starting pools anew may still help cases that are retried (--retries).
  [[nodiscard]] bool another_start_may_help() const { return another_start_may_help_; }
  // If the key is given up: the outcome of its cases, and the stderr of the ranks of the last start.
  [[nodiscard]] CaseOutcome given_up_outcome() const { return given_up_outcome_; }
  [[nodiscard]] const std::vector<StderrTail>& last_start_tails() const { return last_start_tails_; }

 private:
  const RunConfig& config_;
  int failed_starts_ = 0;  // in a row
  int timeouts_ = 0;       // in a row
  std::optional<std::string> given_up_;
  CaseOutcome given_up_outcome_ = CaseOutcome::infra;
  bool another_start_may_help_ = false;
  std::vector<StderrTail> last_start_tails_;
};

}  // namespace cp_pool
