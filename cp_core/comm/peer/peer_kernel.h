// An operation of a PeerLink as one kernel, whose thread blocks copy, raise flags and wait for flags. It uses all
// multiprocessors if the device has no other work, and few beside attention. This header does not include LibTorch's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <span>

#include "cp_core/thd/block_copy.h"

namespace cp_pool::cuda {

inline constexpr std::size_t kMostPeers = 32;

// The state of a group of ranks between operations, in device memory and initially zero. One operation uses it at a
// time. All ranks of the group must have had the same number of operations.
struct alignas(64) PeerTurn {
  unsigned turn;     // how many operations have ended
  unsigned written;  // how many thread blocks of the current launch have finished writing
};

// A flag holds the number of the last operation that raised it. At most kMostPeers flags of each kind.
struct PeerOperation {
  std::span<unsigned* const> tell_ready;
  std::span<unsigned* const> await_ready;
  std::span<unsigned* const> tell_arrived;
  std::span<unsigned* const> await_arrived;
  unsigned* stop = nullptr;           // waits end once this is not 0
  std::span<const BlockCopy> blocks;  // to peers: written after await_ready and before tell_arrived
  std::span<const BlockCopy> own;     // on this device: written at any time
  PeerTurn* turns = nullptr;
};

// Launches up to three thread blocks for each of `multiprocessors`. Up to 480 blocks of data are copied in one launch,
// more in several.
void launch_peer_operation(const PeerOperation& operation, int multiprocessors, cudaStream_t stream);

}  // namespace cp_pool::cuda
