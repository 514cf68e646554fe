// An implementation that makes the mistake of a hypothesis: it returns what the simulation predicts, rounded to the
// case's dtype. Every rank computes the whole problem.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/hypothesis_check.h"
#include "cp_core/run_case/implementation.h"

namespace cp_pool::diagnosis::test {

// An observation of a case without results, as DenseProblem needs it.
Observation unanswered(const Case& c, const SequenceLengths& lengths, const verify::Sharding& sharding, int ranks);

// What ranks return that make the mistake of a hypothesis, which must not be one of those that have only `shows`. Null:
// what they should return.
WholeResults simulated(const DenseProblem& dense, const Hypothesis* hypothesis, const Attempt& attempt);

// Our convention, and padding that holds numbers.
verify::Sharding simulated_sharding();

class SimulatedAttention final : public Implementation {
 public:
  // hypothesis: the index of the mistake in all_hypotheses() for a case whose `failing` results fail; -1: no mistake.
  // takes_windows: takes cases with a window; else it skips them.
  SimulatedAttention(std::vector<std::string> failing, int hypothesis, Attempt attempt, bool takes_windows = true)
      : failing_(std::move(failing)), hypothesis_(hypothesis), attempt_(attempt), takes_windows_(takes_windows) {}

  std::string skip_reason(const Case& c, const at::Device& /*device*/) override {
    const bool has_window = c.window[0] != kInfiniteWindow || c.window[1] != kInfiniteWindow;
    return has_window && !takes_windows_ ? "it takes no windows" : "";
  }
  std::string backend(const Case& /*c*/, const at::Device& /*device*/) override { return "simulated"; }
  verify::Sharding sharding(const Case& /*c*/, const SequenceLengths& /*lengths*/) override {
    return simulated_sharding();
  }
  bool repeats_bits(const Case& /*c*/, const at::Device& /*device*/) override { return true; }
  std::int64_t probe_heads(const Case& c) override { return c.kv_heads; }
  std::unique_ptr<Step> make_step(const StepSetting& setting, const verify::Shards& shards) override;

 private:
  std::vector<std::string> failing_;
  int hypothesis_;
  Attempt attempt_;
  bool takes_windows_;
};

}  // namespace cp_pool::diagnosis::test
