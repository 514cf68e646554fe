// How NCCL sums: it moves bytes, and only sums and maxima know a dtype.
#pragma once

#include <nccl.h>

#include <ATen/core/Tensor.h>

#include "cp_core/comm/communicator.h"

namespace cp_pool {

// Throws std::invalid_argument: NCCL has no such dtype.
ncclDataType_t reduction_type(const at::Tensor& tensor);
ncclRedOp_t reduction_of(const at::Tensor& tensor, ReduceOp op);
// Partial sums of 16-bit floats are kept in fp32, and rounded once.
bool widens(const at::Tensor& tensor, ReduceOp op);

}  // namespace cp_pool
