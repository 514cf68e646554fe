#include "cp_core/comm/nccl/nccl_reduction.h"

#include <stdexcept>

#include <fmt/format.h>

namespace cp_pool {

ncclDataType_t reduction_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kHalf:
      return ncclFloat16;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kInt:
      return ncclInt32;
    case at::kLong:
      return ncclInt64;
    case at::kChar:
      return ncclInt8;
    case at::kByte:
    case at::kBool:
      return ncclUint8;
    default:
      throw std::invalid_argument(fmt::format("no reduction of {}", c10::toString(tensor.scalar_type())));
  }
}

ncclRedOp_t reduction_of(const at::Tensor& tensor, ReduceOp op) {
  // The sum of booleans is their logical "or".
  return op == ReduceOp::max || tensor.scalar_type() == at::kBool ? ncclMax : ncclSum;
}

bool widens(const at::Tensor& tensor, ReduceOp op) {
  return op == ReduceOp::sum && at::isReducedFloatingType(tensor.scalar_type());
}

}  // namespace cp_pool
