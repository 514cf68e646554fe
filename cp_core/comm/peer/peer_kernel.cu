#include <algorithm>
#include <stdexcept>

#include "cp_core/comm/peer/peer_kernel.h"
#include "cp_core/thd/block_list.cuh"
#include "cp_core/thd/row_launch.h"
#include "cp_core/thd/row_lists.cuh"

namespace cp_pool::cuda {
namespace {

// Two thread blocks on each multiprocessor use the full bandwidth of the link to other devices.
constexpr unsigned kWritersOfAMultiprocessor = 2;
constexpr unsigned kKeepersOfAMultiprocessor = 1;
constexpr unsigned kSpinsBetweenLooks = 1024;

struct Flags {
  unsigned* words[kMostPeers];
  unsigned count;
};
struct PeerFlags {
  Flags tell_ready;
  Flags await_ready;
  Flags tell_arrived;
  Flags await_arrived;
  unsigned* stop;
  bool ends;  // this is the last launch of the operation
};

__device__ void tell(const Flags& flags, unsigned turn) {
  if (threadIdx.x >= flags.count) return;
  __nv_atomic_store_n(flags.words[threadIdx.x], turn, __NV_ATOMIC_RELEASE, __NV_THREAD_SCOPE_SYSTEM);
}

// The stop word is in host memory, which is slow to read, so it is polled less often than the flags.
__device__ void await(const Flags& flags, unsigned turn, unsigned* stop) {
  if (threadIdx.x >= flags.count) return;
  unsigned* const flag = flags.words[threadIdx.x];
  for (unsigned spins = 1; __nv_atomic_load_n(flag, __NV_ATOMIC_ACQUIRE, __NV_THREAD_SCOPE_SYSTEM) != turn; ++spins) {
    if (spins % kSpinsBetweenLooks == 0 &&
        __nv_atomic_load_n(stop, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_SYSTEM) != 0) {
      return;
    }
  }
}

// Thread block 0 raises the ready flags, which depends on no other thread block. The thread block that finishes writing
// last raises the arrived flags and waits for those of the peers.
template <typename Unit, int kCapacity>
__device__ void write_to_peers(const BlockList<kCapacity>& list, std::int64_t end, unsigned writers,
                               const PeerFlags& flags, PeerTurn* turns) {
  __shared__ bool last;
  const unsigned turn = turns->turn + 1;
  if (blockIdx.x == 0) tell(flags.tell_ready, turn);
  await(flags.await_ready, turn, flags.stop);
  __syncthreads();
  for (std::int64_t tile = std::int64_t{blockIdx.x} * kCopyTile; tile < end;
       tile += std::int64_t{writers} * kCopyTile) {
    copy_tile<Unit>(list, tile, end);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    last = __nv_atomic_fetch_add(&turns->written, 1U, __NV_ATOMIC_ACQ_REL, __NV_THREAD_SCOPE_SYSTEM) == writers - 1;
  }
  __syncthreads();
  if (!last) return;
  if (threadIdx.x == 0) *turns = {.turn = flags.ends ? turn : turn - 1, .written = 0};
  tell(flags.tell_arrived, turn);
  await(flags.await_arrived, turn, flags.stop);
}

// The first `writers` thread blocks copy the units before `to_peers` to peers. The other thread blocks copy the units
// from there to `total` on this device.
template <typename Unit, int kCapacity>
__global__ void __launch_bounds__(kCopyThreads)
    peer_operation_kernel(const __grid_constant__ BlockList<kCapacity> list, std::int64_t to_peers, std::int64_t total,
                          unsigned writers, const __grid_constant__ PeerFlags flags, PeerTurn* turns) {
  if (blockIdx.x < writers) return write_to_peers<Unit>(list, to_peers, writers, flags, turns);
  const std::int64_t step = std::int64_t{gridDim.x - writers} * kCopyTile;
  for (std::int64_t tile = to_peers + std::int64_t{blockIdx.x - writers} * kCopyTile; tile < total; tile += step) {
    copy_tile<Unit>(list, tile, total);
  }
}

template <typename Unit, int kCapacity>
void launch(const PeerOperation& operation, const PeerFlags& flags, int multiprocessors, cudaStream_t stream) {
  BlockList<kCapacity> list;
  append<Unit>(list, operation.blocks);
  const std::int64_t to_peers = units_of(list);
  append<Unit>(list, operation.own);
  const std::int64_t total = units_of(list);
  const auto some_for = [&](std::int64_t units, unsigned of_a_multiprocessor) {
    return std::min(blocks_for(units, kCopyTile), of_a_multiprocessor * static_cast<unsigned>(multiprocessors));
  };
  const unsigned writers = std::max(some_for(to_peers, kWritersOfAMultiprocessor), 1U);
  const unsigned keepers = some_for(total - to_peers, kKeepersOfAMultiprocessor);
  peer_operation_kernel<Unit>
      <<<writers + keepers, kCopyThreads, 0, stream>>>(list, to_peers, total, writers, flags, operation.turns);
}

Flags flags_of(std::span<unsigned* const> words) {
  if (words.size() > kMostPeers) throw std::length_error("too many peers for one kernel");
  Flags result{};
  std::copy(words.begin(), words.end(), result.words);
  result.count = static_cast<unsigned>(words.size());
  return result;
}

}  // namespace

void launch_peer_operation(const PeerOperation& operation, int multiprocessors, cudaStream_t stream) {
  const PeerFlags flags{.tell_ready = flags_of(operation.tell_ready),
                        .await_ready = flags_of(operation.await_ready),
                        .tell_arrived = flags_of(operation.tell_arrived),
                        .await_arrived = flags_of(operation.await_arrived),
                        .stop = operation.stop,
                        .ends = true};
  const std::size_t count = operation.blocks.size() + operation.own.size();
  if (count > kMostBlocks) {
    PeerFlags before = flags;
    before.tell_arrived.count = before.await_arrived.count = 0;
    before.ends = false;
    PeerFlags after = flags;
    after.tell_ready.count = after.await_ready.count = 0;
    PeerOperation no_blocks;
    no_blocks.turns = operation.turns;
    launch<uint4, kFewBlocks>(no_blocks, before, multiprocessors, stream);
    launch_copy_blocks(operation.blocks, stream);
    launch<uint4, kFewBlocks>(no_blocks, after, multiprocessors, stream);
    return launch_copy_blocks(operation.own, stream);
  }
  const std::int64_t unit = std::min(common_unit(operation.blocks), common_unit(operation.own));
  with_unit(unit, [&]<typename Unit>() {
    if (count <= kFewBlocks) return launch<Unit, kFewBlocks>(operation, flags, multiprocessors, stream);
    launch<Unit, kMostBlocks>(operation, flags, multiprocessors, stream);
  });
}

}  // namespace cp_pool::cuda
