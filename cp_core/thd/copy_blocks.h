// Copies many rectangles of memory at once, between tensors of any dtype. Packing of messages is made of it.
#pragma once

#include <span>

#include <c10/core/Device.h>

#include "cp_core/thd/block_copy.h"

namespace cp_pool {

// On a GPU: on the current stream, one launch for up to 480 blocks. A target may overlap no source and no other target.
void copy_blocks(std::span<const BlockCopy> blocks, const c10::Device& device);

}  // namespace cp_pool
