// A second, minimal implementation of context-parallel attention for tests of run_case/implementation.h. It gathers K
// and V and computes densely in fp32. It can be made wrong in common ways.
#pragma once

#include <memory>
#include <string>

#include "cp_core/run_case/implementation.h"
#include "cp_core/run_case/repetition.h"

namespace cp_pool::test {

enum class PlainFault {
  none,
  diagonal_top_left,     // query i is at key i, not at i + skv - sq
  window_one_too_wide,   // to the left
  sequences_see_others,  // sequences of a pack see each other
  reads_padding,         // padding keys of a query's own sequence are seen
  unscaled,
  lse_in_base_2,
  maximum_from_minus_5e4,          // the running maximum of the softmax does not start at minus infinity
  keys_not_summed,                 // dk and dv count only the rank's own queries
  heads_interleaved,               // query head h reads key-value head h % kv_heads though the declaration says blocked
  repeats_other_bits,              // every second step gives other bits
  first_step_has_other_bits,       // only the first step gives other bits than all later ones
  depends_on_sign,                 // a positive out is one unit in the last place larger
  keeps_dk,                        // a step returns the dk of the step before
  replicated_keys_of_every_rank,   // replicated keys are seen once for each rank
  replicated_loss_of_every_rank,   // replicated queries count in dk and dv once for each rank
  replicated_gradients_of_a_rank,  // dk and dv of replicated keys count only the rank's own queries
};

class PlainAttention final : public Implementation {
 public:
  explicit PlainAttention(verify::Sharding sharding, PlainFault fault = PlainFault::none, RepeatPromise promise = {})
      : sharding_(std::move(sharding)), fault_(fault), promise_(promise) {}

  std::string skip_reason(const Case& c, const at::Device& device) override;
  std::string backend(const Case& /*c*/, const at::Device& /*device*/) override { return "plain"; }
  verify::Sharding sharding(const Case& /*c*/, const SequenceLengths& /*lengths*/) override { return sharding_; }
  bool repeats_bits(const Case& /*c*/, const at::Device& /*device*/) override { return promise_.bits; }
  bool remarks_other_bits() override { return promise_.remarks_other_bits; }
  bool is_odd() override { return promise_.odd; }
  std::int64_t probe_heads(const Case& c) override { return c.kv_heads; }
  std::string single_rank_obstacle() override { return "it is not run on one rank"; }
  std::unique_ptr<Step> make_step(const StepSetting& setting, const verify::Shards& shards) override;

 private:
  verify::Sharding sharding_;
  PlainFault fault_;
  RepeatPromise promise_;
  int steps_ = 0;
  at::Tensor last_dk_;
};

}  // namespace cp_pool::test
