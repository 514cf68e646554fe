// An operation of a PeerLink as a kernel, whose blocks of threads copy, and tell and wait themselves: as many as fill
// the device where nothing else is to be done meanwhile, a few beside attention. Without LibTorch's headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <span>

#include "cp_core/thd/block_copy.h"

namespace cp_pool::cuda {

inline constexpr std::size_t kMostPeers = 32;

// Of a group of ranks, which all have had as many operations. In memory of the device, all zero when made; one
// operation uses it at a time.
struct alignas(64) PeerTurn {
  unsigned turn;     // number of operations that have ended
  unsigned written;  // blocks of threads of the one that goes on
};

// A flag has the number of the operation that it was told in last. At most kMostPeers of each.
struct PeerOperation {
  std::span<unsigned* const> tell_ready;
  std::span<unsigned* const> await_ready;
  std::span<unsigned* const> tell_arrived;
  std::span<unsigned* const> await_arrived;
  unsigned* stop = nullptr;           // once not 0, nothing is waited for
  std::span<const BlockCopy> blocks;  // to peers: written after await_ready and before tell_arrived
  std::span<const BlockCopy> own;     // beside that
  PeerTurn* turns = nullptr;
};

// Takes up to three blocks of threads for each of `multiprocessors`. One launch for up to 480 blocks; else several, of
// which those that copy take what they find.
void launch_peer_operation(const PeerOperation& operation, int multiprocessors, cudaStream_t stream);

}  // namespace cp_pool::cuda
