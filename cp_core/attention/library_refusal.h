// The refusal that the attention kernels of libraries share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cases/case.h"

namespace cp_pool {

// Implements AttentionBackend::refusal for kernels that take bf16 and fp16, head dimensions up to largest_head_dim, and
// GPUs of compute capability 8.0 or more. library: the name with which the sentence begins.
std::string library_refusal(const Case& c, std::string_view library, std::int64_t largest_head_dim);

}  // namespace cp_pool
