// One attention step of one rank: its inputs and its results.
#pragma once

#include <ATen/core/Tensor.h>

#include "cases/case.h"
#include "cases/lengths.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/context_parallel/context_parallel.h"
#include "cp_core/verify/inputs.h"
#include "cp_core/verify/output_hash.h"
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

struct Shards {
  AttentionInputs inputs;
  at::Tensor dout;  // undefined unless training
};

Shards make_shards(const Case& c, const CanonicalInputs& inputs, const RankView& view);

struct Outputs {
  AttentionForward forward;
  AttentionGradients gradients;  // undefined tensors unless training
};

std::string hash_of(const Outputs& outputs);

}  // namespace cp_pool::verify
