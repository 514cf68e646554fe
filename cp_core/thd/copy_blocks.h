// Copies many rectangles of memory at once, between tensors of any dtype, for example to pack messages.
#pragma once

#include <span>

#include <c10/core/Device.h>

#include "cp_core/thd/block_copy.h"

namespace cp_pool {

// On a GPU this runs on the current stream, with one launch for up to 480 blocks. A target must not overlap a source or
// another target.
void copy_blocks(std::span<const BlockCopy> blocks, const c10::Device& device);

}  // namespace cp_pool
