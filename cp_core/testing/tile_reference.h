// For tests of backends: one group of tiles computed densely in fp64 from the definition in tiling.h, and how far off a
// computation in less precision may be.
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

// Rows of no tile are NaN, in every tensor.
struct GroupInputs {
  AttentionOperands operands;
  AttentionBackwardOperands backward;  // of an attention that saw more keys than the group's
};

// A number and the sum of the absolute values that it is made of: what rounding errors are proportional to.
struct Figure {
  at::Tensor value;
  at::Tensor magnitude;
};

// fp64, 0 at rows of no tile.
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
// device: where the attention in fp64 is computed; what is returned is on the CPU.
GroupInputs make_group_inputs(const GroupCase& c, const TileShape& shape, at::ScalarType dtype, const at::Tensor& bias,
                              const at::Device& device = at::kCPU);
GroupExpected expect_group(const GroupCase& c, const GroupInputs& inputs, const at::Device& device = at::kCPU);

// True at rows of some tile.
at::Tensor covered_queries(const GroupCase& c);
at::Tensor covered_keys(const GroupCase& c);

}  // namespace cp_pool::test
