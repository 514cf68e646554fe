#include <algorithm>

#include "cp_core/thd/block_list.cuh"
#include "cp_core/thd/row_launch.h"
#include "cp_core/thd/row_lists.cuh"

namespace cp_pool::cuda {
namespace {

template <typename Unit, int kCapacity>
__global__ void __launch_bounds__(kCopyThreads)
    copy_blocks_kernel(const __grid_constant__ BlockList<kCapacity> list, std::int64_t total) {
  copy_tile<Unit>(list, std::int64_t{blockIdx.x} * kCopyTile, total);
}

template <typename Unit, int kCapacity>
void launch(std::span<const BlockCopy> copies, cudaStream_t stream) {
  while (!copies.empty()) {
    const auto some = copies.first(std::min<std::size_t>(kCapacity, copies.size()));
    copies = copies.subspan(some.size());
    BlockList<kCapacity> list;
    append<Unit>(list, some);
    const std::int64_t total = units_of(list);
    if (total == 0) continue;
    copy_blocks_kernel<Unit><<<blocks_for(total, kCopyTile), kCopyThreads, 0, stream>>>(list, total);
  }
}

}  // namespace

void launch_copy_blocks(std::span<const BlockCopy> copies, cudaStream_t stream) {
  with_unit(common_unit(copies), [&]<typename Unit>() {
    if (copies.size() <= kFewBlocks) return launch<Unit, kFewBlocks>(copies, stream);
    launch<Unit, kMostBlocks>(copies, stream);
  });
}

}  // namespace cp_pool::cuda
