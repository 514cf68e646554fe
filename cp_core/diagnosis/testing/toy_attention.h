// An implementation of context-parallel attention in which every query sees each key as often as a test says, whatever
// the mask. It gathers everything and computes densely. It has no backward.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/run_case/implementation.h"

namespace cp_pool::diagnosis::test {

// Tensors are fp64 [rows of q, rows of kv] of the probe's grid (wrong_pairs.h).
struct ToySight {
  std::vector<at::Tensor> times;  // how often the query sees the key; query head h has element h modulo the size
  at::Tensor in_out{};            // a factor of each weight in out that does not affect lse. Undefined: 1
  bool gives_lse = true;
  double lse_factor = 1;  // lse is multiplied by it
  bool repeats = true;    // false: every second out is a little larger
};

class ToyAttention final : public Implementation {
 public:
  ToyAttention(verify::Sharding sharding, ToySight sight) : sharding_(std::move(sharding)), sight_(std::move(sight)) {}

  std::string skip_reason(const Case& /*c*/, const at::Device& /*device*/) override { return {}; }
  std::string backend(const Case& /*c*/, const at::Device& /*device*/) override { return "toy"; }
  verify::Sharding sharding(const Case& /*c*/, const SequenceLengths& /*lengths*/) override { return sharding_; }
  bool repeats_bits(const Case& /*c*/, const at::Device& /*device*/) override { return true; }
  std::int64_t probe_heads(const Case& /*c*/) override { return 1; }
  std::unique_ptr<Step> make_step(const StepSetting& setting, const verify::Shards& shards) override;

 private:
  verify::Sharding sharding_;
  ToySight sight_;
  int steps_ = 0;
};

}  // namespace cp_pool::diagnosis::test
