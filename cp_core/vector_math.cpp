#include "cp_core/vector_math.h"

#include <ATen/ops/exp.h>
#include <ATen/ops/zeros.h>

namespace cp_pool {

void settle_vector_math() {
  // One function is enough, since all of them share the CPU code.
  static const at::Tensor settled = at::zeros({1}).exp();
  static_cast<void>(settled);
}

}  // namespace cp_pool
