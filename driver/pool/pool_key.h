// What all pools of one key (device and world size) have in common: their names, and whether it still makes sense to
// start one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "driver/events.h"
#include "driver/pool/pool.h"
#include "driver/run.h"

namespace cp_pool {

class PoolKey {
 public:
  PoolKey(const RunConfig& config, int world_size);

  [[nodiscard]] int world_size() const { return world_size_; }
  PoolId next_id() { return {name_, ++generation_}; }

  void note_start();
  void note_failed_start(StartFailure failure);
  void note_outcome(CaseOutcome outcome);

  // Why no pool of this key is started any more, as a sentence; nullopt: pools are.
  [[nodiscard]] const std::optional<std::string>& given_up() const { return given_up_; }
  // Then: what becomes of its cases, and what the ranks of the last start have said.
  [[nodiscard]] CaseOutcome given_up_outcome() const { return given_up_outcome_; }
  [[nodiscard]] const std::vector<StderrTail>& last_start_tails() const { return last_start_tails_; }

 private:
  const RunConfig& config_;
  int world_size_;
  std::string name_;
  int generation_ = 0;
  int failed_starts_ = 0;  // running
  int timeouts_ = 0;       // running
  std::optional<std::string> given_up_;
  CaseOutcome given_up_outcome_ = CaseOutcome::infra;
  std::vector<StderrTail> last_start_tails_;
};

}  // namespace cp_pool
