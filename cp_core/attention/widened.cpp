#include "cp_core/attention/widened.h"

#include <ATen/ops/constant_pad_nd.h>

namespace cp_pool {

at::Tensor widened(const at::Tensor& rows, std::int64_t head_dim) {
  return rows.size(2) == head_dim ? rows : at::constant_pad_nd(rows, {0, head_dim - rows.size(2)});
}

}  // namespace cp_pool
