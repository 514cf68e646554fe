// Dtypes and operators for NCCL's reductions. Everything else that NCCL moves is bytes.
#pragma once

#include <nccl.h>

#include <ATen/core/Tensor.h>

#include "cp_core/comm/communicator.h"

namespace cp_pool {

// Throws std::invalid_argument if NCCL has no such dtype.
ncclDataType_t reduction_type(const at::Tensor& tensor);
ncclRedOp_t reduction_of(const at::Tensor& tensor, ReduceOp op);
// True if the operands must be widened to fp32, so that sums of 16-bit floats are rounded once.
bool widens(const at::Tensor& tensor, ReduceOp op);

}  // namespace cp_pool
