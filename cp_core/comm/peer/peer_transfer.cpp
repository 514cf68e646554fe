// Carries out the operations of a PeerLink.
#include <algorithm>
#include <cuda_runtime_api.h>
#include <vector>

#include <c10/cuda/CUDAException.h>
#include <fmt/format.h>

#include "cp_core/comm/peer/peer_link.h"
#include "cp_core/cuda/driver_calls.h"
#include "cp_core/thd/row_kernels.h"

namespace cp_pool {
namespace {

using Flag = PeerBoard::Flag;
using Note = PeerBoard::Note;

// Enqueues a copy that a copy engine executes.
void copy_by_engine(const BlockCopy& block, cudaStream_t stream) {
  const auto width = static_cast<std::size_t>(block.width);
  const auto rows = static_cast<std::size_t>(block.rows);
  const bool dense = block.rows == 1 || (block.source_stride == block.width && block.target_stride == block.width);
  if (dense) {
    C10_CUDA_CHECK(cudaMemcpyAsync(block.target, block.source, rows * width, cudaMemcpyDeviceToDevice, stream));
    return;
  }
  C10_CUDA_CHECK(cudaMemcpy2DAsync(block.target, static_cast<std::size_t>(block.target_stride), block.source,
                                   static_cast<std::size_t>(block.source_stride), width, rows, cudaMemcpyDeviceToDevice,
                                   stream));
}

// A copy engine needs 2 us for each copy besides the time for its bytes. Many short copies are therefore slower than
// one kernel, although a kernel takes multiprocessors from other work.
bool are_small_copies(std::span<const BlockCopy> blocks) {
  constexpr std::size_t kFew = 2;
  constexpr std::int64_t kShort = std::int64_t{2} << 20;
  std::int64_t bytes = 0;
  for (const BlockCopy& block : blocks) bytes += block.rows * block.width;
  return blocks.size() > kFew && bytes < static_cast<std::int64_t>(blocks.size()) * kShort;
}

}  // namespace

void PeerLink::enqueue(const Operation& operation, c10::cuda::CUDAStream stream, Clock::time_point deadline,
                       const std::function<void()>& check) {
  const std::vector<std::vector<Note>> windows = meet(operation, deadline, check);
  std::vector<std::vector<BlockCopy>> blocks;
  blocks.reserve(windows.size());
  for (std::size_t i = 0; i < windows.size(); ++i) {
    blocks.push_back(resolved(operation.outgoing[i], windows[i], operation));
  }
  enqueue_copies(operation, blocks, stream);
}

// blocks: in the order of operation.outgoing.
void PeerLink::enqueue_copies(const Operation& operation, std::span<const std::vector<BlockCopy>> blocks,
                              c10::cuda::CUDAStream stream) {
  const int group = operation.group;
  const auto tell = [&](Flag kind, int to) { return cuda::write_word(flag(kind, group, rank_, to), 1); };
  std::vector<cuda::StreamOperation> queue;
  const auto await = [&](Flag kind, int from) {
    queue.push_back(cuda::wait_for_bits(flag(kind, group, from, rank_), 1));
    queue.push_back(cuda::write_word(flag(kind, group, from, rank_), 0));
  };
  const auto flush = [&] {
    cuda::enqueue(queue, stream);
    queue.clear();
  };

  for (const Incoming& incoming : operation.incoming) queue.push_back(tell(Flag::ready, incoming.rank));
  for (const Outgoing& outgoing : operation.outgoing) await(Flag::ready, outgoing.rank);
  flush();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if ((shares_ && blocks[i].size() > 1) || are_small_copies(blocks[i])) {
      cuda::copy_blocks(blocks[i]);  // one launch, which waits for no peer
    } else {
      for (const BlockCopy& block : blocks[i]) copy_by_engine(block, stream);
    }
    queue.push_back(tell(Flag::arrived, operation.outgoing[i].rank));
    flush();
  }
  for (const Incoming& incoming : operation.incoming) await(Flag::arrived, incoming.rank);
  flush();
}

// Returns the blocks to copy, with the addresses of the peer's windows in this process as targets.
std::vector<BlockCopy> PeerLink::resolved(const Outgoing& outgoing, const std::vector<Note>& windows,
                                          const Operation& operation) {
  const auto fail = [&](const std::string& text) {
    throw CommError(CommError::Kind::failed, fmt::format("{}: {}", operation.step, text));
  };
  if (outgoing.fills && outgoing.blocks.size() != windows.size()) {
    fail(
        fmt::format("{} tensors for rank {}, which expects {}", outgoing.blocks.size(), outgoing.rank, windows.size()));
  }
  std::vector<BlockCopy> blocks;
  blocks.reserve(outgoing.blocks.size());
  for (const PeerWindows::Put& placed : outgoing.blocks) {
    if (placed.window >= windows.size()) {
      fail(fmt::format("rank {} has not opened window {}", outgoing.rank, placed.window));
    }
    const Note& window = windows[placed.window];
    BlockCopy block = placed.block;
    const auto bytes = static_cast<std::uint64_t>(block.rows * block.width);
    if ((outgoing.fills && bytes != window.bytes) ||
        !lies_in(static_cast<std::int64_t>(window.bytes), block, placed.first, block.target_stride)) {
      fail(fmt::format("{} rows of {} bytes, {} apart, from byte {} on, for window {} of rank {}, which has {} bytes",
                       block.rows, block.width, block.target_stride, placed.first, placed.window, outgoing.rank,
                       window.bytes));
    }
    if (is_empty(block)) continue;
    block.target = memory_.open(outgoing.rank, window) + placed.first;
    blocks.push_back(block);
  }
  return blocks;
}

void* PeerLink::flag(Flag flag, int group, int from, int to) const {
  return flags_on_device_ + board_.flag(flag, group, from, to);
}

}  // namespace cp_pool
