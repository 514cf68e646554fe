#include "cp_core/context_parallel/head_group.h"

namespace cp_pool {

at::Tensor narrowed(const at::Tensor& tensor, std::int64_t dim, HeadGroup group) {
  const std::int64_t heads = tensor.size(dim) / group.count;
  return tensor.narrow(dim, group.index * heads, heads);
}

AttentionOperands narrowed(const AttentionOperands& operands, HeadGroup group) {
  AttentionOperands some = operands;
  some.q = narrowed(operands.q, 1, group);
  some.k = narrowed(operands.k, 1, group);
  some.v = narrowed(operands.v, 1, group);
  return some;
}

AttentionBackwardOperands narrowed(const AttentionBackwardOperands& backward, HeadGroup group) {
  const auto if_defined = [&group](const at::Tensor& tensor, std::int64_t dim) {
    return tensor.defined() ? narrowed(tensor, dim, group) : at::Tensor();
  };
  return {.dout = narrowed(backward.dout, 1, group),
          .lse = narrowed(backward.lse, 0, group),
          .delta = if_defined(backward.delta, 0),
          .out = if_defined(backward.out, 1)};
}

}  // namespace cp_pool
