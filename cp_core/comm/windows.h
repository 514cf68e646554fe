// One-sided communication: ranks write into windows, memory that their peers have opened. A communicator may offer it
// (Communicator::windows). Windows suit rows that lie apart, because nothing has to be packed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "cp_core/comm/communicator.h"
#include "cp_core/thd/block_copy.h"

namespace cp_pool {

class PeerWindows {
 public:
  PeerWindows() = default;
  PeerWindows(const PeerWindows&) = delete;
  PeerWindows& operator=(const PeerWindows&) = delete;
  virtual ~PeerWindows() = default;

  // A block that a rank writes into memory that a peer has opened.
  struct Put {
    int peer = 0;            // the rank to write to, which may be this one
    std::size_t window = 0;  // index among the windows that the peer opens
    std::int64_t first = 0;  // byte of the window where the block's rows begin
    BlockCopy block;         // the source and the strides of both sides; its target pointer is not used
  };
  // An operation of the communicator. Every rank opens any number of windows and writes into those of all ranks. The
  // operation is complete when the data that this rank writes has been sent and the data that the others write here has
  // arrived. sources: the tensors that contain the blocks. Blocks in a window must not overlap. Until then this rank
  // may use the parts of its windows that no block covers.
  [[nodiscard]] virtual Communicator::WorkPtr put_all(std::span<const at::Tensor> windows,
                                                      std::span<const at::Tensor> sources, std::span<const Put> puts,
                                                      std::string_view what) = 0;
};

}  // namespace cp_pool
