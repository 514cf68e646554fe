// The rows of a case that one rank holds, and its shards of the inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include "cases/case.h"
#include "cases/lengths.h"
#include "cp_core/verify/inputs.h"
#include "cp_core/verify/rank_bias.h"
#include "cp_core/verify/reference.h"
#include "cp_core/verify/rows.h"
#include "cp_core/verify/sharding.h"

namespace cp_pool::verify {

// The rows of each tensor that a rank holds, and the form in which the implementation gets them.
struct RankView {
  // Throws std::invalid_argument if there is a sharding_fault.
  RankView(const Case& c, const SequenceLengths& lengths, const Sharding& sharding, int rank, int size,
           const at::Device& device = at::kCPU);
  // With the sharding that our own implementation declares.
  RankView(const Case& c, const SequenceLengths& lengths, int rank, int size, const at::Device& device = at::kCPU)
      : RankView(c, lengths, Sharding{}, rank, size, device) {}

  Sharding sharding;
  RankRows q;
  RankRows kv;
  RankBias bias;

 private:
  RankView(const Case& c, const SequenceLengths& lengths, const Sharding& declared, const Ownership& owners, int rank,
           const at::Device& device);
};

// Tensors in the case's layout with the implementation's order of heads; undefined if the case does not have them.
struct Shards {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
  at::Tensor dout;  // undefined unless training
  at::Tensor bias;  // as RankBias::shard returns it
  at::Tensor sink;  // fp32 [heads]; undefined unless the softmax is learnable
};

Shards make_shards(const Case& c, const CanonicalInputs& inputs, const RankView& view);

// Reorders the heads of results from the implementation's order to that of docs/definitions.md. Results that are
// missing, or that have a wrong number of heads or dimensions, stay as they are.
Results in_defined_heads(const Case& c, const Results& results, const RankView& view);

}  // namespace cp_pool::verify
