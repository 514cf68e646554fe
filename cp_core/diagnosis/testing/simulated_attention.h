// An implementation that makes the mistake of a hypothesis: it returns what the simulation predicts, rounded to the
// case's dtype. Every rank computes the whole problem from the case's seed.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "cp_core/diagnosis/bench.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/trial/implementation.h"

namespace cp_pool::diagnosis::test {

class SimulatedAttention final : public Implementation {
 public:
  // hypothesis: the index of the mistake in all_hypotheses() for a case whose `failing` results fail; -1: no mistake.
  SimulatedAttention(std::vector<std::string> failing, int hypothesis, Attempt attempt)
      : failing_(std::move(failing)), hypothesis_(hypothesis), attempt_(attempt) {}

  std::string skip_reason(const Case& /*c*/, const at::Device& /*device*/) override { return {}; }
  std::string backend(const Case& /*c*/, const at::Device& /*device*/) override { return "simulated"; }
  verify::Sharding sharding(const Case& /*c*/, const SequenceLengths& /*lengths*/) override;
  bool repeats_bits(const Case& /*c*/, const at::Device& /*device*/) override { return true; }
  std::int64_t probe_heads(const Case& c) override { return c.kv_heads; }
  std::unique_ptr<Step> make_step(const StepSetting& setting, const verify::Shards& shards) override;

 private:
  std::vector<std::string> failing_;
  int hypothesis_;
  Attempt attempt_;
};

}  // namespace cp_pool::diagnosis::test
