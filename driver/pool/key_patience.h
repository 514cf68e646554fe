// How much longer a run waits for pools of one key: whether starting one for its cases still makes sense.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "driver/events.h"
#include "driver/pool/pool.h"
#include "driver/run.h"

namespace cp_pool {

class KeyPatience {
 public:
  explicit KeyPatience(const RunConfig& config) : config_(config) {}

  void note_start();
  void note_failed_start(const StartFailure& failure);
  void note_outcome(CaseOutcome outcome);

  // Why no pool of this key is started for this run any more, as a sentence; nullopt: pools are.
  [[nodiscard]] const std::optional<std::string>& given_up() const { return given_up_; }
  // Then: whether starting pools anew makes sense all the same, if somebody asks for it (--retries).
  [[nodiscard]] bool another_start_may_help() const { return another_start_may_help_; }
  // What becomes of its cases, and what the ranks of the last start have said.
  [[nodiscard]] CaseOutcome given_up_outcome() const { return given_up_outcome_; }
  [[nodiscard]] const std::vector<StderrTail>& last_start_tails() const { return last_start_tails_; }

 private:
  const RunConfig& config_;
  int failed_starts_ = 0;  // running
  int timeouts_ = 0;       // running
  std::optional<std::string> given_up_;
  CaseOutcome given_up_outcome_ = CaseOutcome::infra;
  bool another_start_may_help_ = false;
  std::vector<StderrTail> last_start_tails_;
};

}  // namespace cp_pool
