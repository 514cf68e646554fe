// What one rank holds of a case: which rows, and its shards of the inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include "cases/case.h"
#include "cases/lengths.h"
#include "cp_core/verify/inputs.h"
#include "cp_core/verify/rank_bias.h"
#include "cp_core/verify/rows.h"

namespace cp_pool::verify {

// Which rows of each tensor a rank holds.
struct RankView {
  RankView(const Case& c, const SequenceLengths& lengths, int rank, int size, const at::Device& device = at::kCPU);

  RankRows q;
  RankRows kv;
  RankBias bias;
};

// In the case's layout; undefined where the case has none.
struct Shards {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
  at::Tensor dout;  // undefined unless training
  at::Tensor bias;  // as RankBias::shard gives it
  at::Tensor sink;  // fp32 [heads]; undefined unless the softmax is learnable
};

Shards make_shards(const Case& c, const CanonicalInputs& inputs, const RankView& view);

}  // namespace cp_pool::verify
