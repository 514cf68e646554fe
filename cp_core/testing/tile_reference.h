// For tests of backends: computes one group of tiles densely in fp64 from the definition in tiling.h, with the
// magnitudes that bound the error of a less precise computation.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "cp_core/attention/backend.h"

namespace cp_pool::test {

struct TileShape {
  std::string name;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim_qk = 0;
  std::int64_t head_dim_v = 0;
};

struct GroupCase {
  std::string name;
  std::int64_t q_tokens = 0;
  std::int64_t k_tokens = 0;
  TileGroup group;
};

// In every tensor, rows that belong to no tile are NaN.
struct GroupInputs {
  AttentionOperands operands;
  AttentionBackwardOperands backward;  // those of an attention that also saw keys outside the group
};

// A number and the sum of the absolute values of its terms, to which rounding errors are proportional.
struct Figure {
  at::Tensor value;
  at::Tensor magnitude;
};

// fp64; rows that belong to no tile are 0.
struct GroupExpected {
  Figure out;        // [q tokens, heads, head_dim_v]
  Figure lse;        // [heads, q tokens]
  Figure max_logit;  // [heads]
  Figure dq;
  Figure dk;
  Figure dv;
  Figure dbias;  // undefined without a bias
};

GroupInputs moved(const GroupInputs& inputs, const at::Device& device);

// bias: undefined, or [1 or sequences, 1 or heads, positions, positions]: fp32 values, which are rounded to dtype.
// device: where the fp64 attention is computed; the returned tensors are on the CPU.
GroupInputs make_group_inputs(const GroupCase& c, const TileShape& shape, at::ScalarType dtype, const at::Tensor& bias,
                              const at::Device& device = at::kCPU);
GroupExpected expect_group(const GroupCase& c, const GroupInputs& inputs, const at::Device& device = at::kCPU);

// bool, one per row: whether the row belongs to a tile.
at::Tensor covered_queries(const GroupCase& c);
at::Tensor covered_keys(const GroupCase& c);

}  // namespace cp_pool::test
