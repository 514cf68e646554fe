// The dtypes of rows that kernels take, without LibTorch's headers.
#pragma once

namespace cp_pool::cuda {

enum class RowType { bf16, fp16, fp32 };

}  // namespace cp_pool::cuda
