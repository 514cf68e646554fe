// Many rectangles of memory copied at once, from and to tensors of any dtype: what packing messages is made of.
#pragma once

#include <span>

#include <c10/core/Device.h>

#include "cp_core/thd/block_copy.h"

namespace cp_pool {

// On a GPU: on the current stream, one launch for up to 480 blocks. The targets must not overlap anything.
void copy_blocks(std::span<const BlockCopy> blocks, const c10::Device& device);

}  // namespace cp_pool
