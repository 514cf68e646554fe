// Carries out the operations of a PeerLink: by copy engines or a small kernel beside other work, by a kernel on all
// multiprocessors if there is no other work.
#include <algorithm>
#include <cuda_runtime_api.h>
#include <vector>

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <fmt/format.h>

#include "cp_core/comm/peer/peer_kernel.h"
#include "cp_core/comm/peer/peer_link.h"
#include "cp_core/cuda/driver_calls.h"
#include "cp_core/thd/row_kernels.h"

namespace cp_pool {
namespace {

using Flag = PeerBoard::Flag;
using Note = PeerBoard::Note;

// The number of multiprocessors that a kernel may use beside other work. They reach two thirds of the link's bandwidth,
// and attention loses them meanwhile.
constexpr int kMultiprocessorsBesideOthers = 12;

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

std::vector<BlockCopy> joined(std::span<const std::vector<BlockCopy>> blocks) {
  std::vector<BlockCopy> all;
  for (const std::vector<BlockCopy>& of_peer : blocks) all.insert(all.end(), of_peer.begin(), of_peer.end());
  return all;
}

}  // namespace

void PeerLink::enqueue(Operation operation, c10::cuda::CUDAStream stream, Clock::time_point deadline,
                       const std::function<void()>& check) {
  const std::vector<std::vector<Note>> windows = meet(operation, deadline, check);
  std::vector<std::vector<BlockCopy>> blocks;
  blocks.reserve(windows.size());
  for (std::size_t i = 0; i < windows.size(); ++i) {
    blocks.push_back(resolved(operation.outgoing[i], windows[i], operation));
  }
  if (!shares_ && (operation.idle || operation.by_kernel)) {
    enqueue_kernel(operation, joined(blocks), stream);
    return;
  }
  if (!operation.own.empty()) cuda::copy_blocks(operation.own);
  enqueue_copies(operation, blocks, stream);
}

// The flags of kernels lie in the memory of the device that waits, since it polls them several times a microsecond.
void PeerLink::enqueue_kernel(const Operation& operation, std::span<const BlockCopy> blocks,
                              c10::cuda::CUDAStream stream) {
  auto* const own = static_cast<std::byte*>(words_.mutable_data_ptr());
  const auto word = [&](std::byte* words, Flag kind, int from, int to) {
    return reinterpret_cast<unsigned*>(words + board_.flag(kind, operation.group, from, to));
  };
  std::vector<unsigned*> tell_ready;
  std::vector<unsigned*> await_arrived;
  for (const Incoming& incoming : operation.incoming) {
    tell_ready.push_back(word(theirs_.at(incoming.rank), Flag::ready, rank_, incoming.rank));
    await_arrived.push_back(word(own, Flag::arrived, incoming.rank, rank_));
  }
  std::vector<unsigned*> await_ready;
  std::vector<unsigned*> tell_arrived;
  for (const Outgoing& outgoing : operation.outgoing) {
    await_ready.push_back(word(own, Flag::ready, outgoing.rank, rank_));
    tell_arrived.push_back(word(theirs_.at(outgoing.rank), Flag::arrived, rank_, outgoing.rank));
  }
  const cuda::PeerOperation call{
      .tell_ready = tell_ready,
      .await_ready = await_ready,
      .tell_arrived = tell_arrived,
      .await_arrived = await_arrived,
      .stop = reinterpret_cast<unsigned*>(flags_on_device_ + board_.stop_flag(rank_)),
      .blocks = blocks,
      .own = operation.own,
      .turns = reinterpret_cast<cuda::PeerTurn*>(own + board_.flag_bytes()) + operation.group,
  };
  const int multiprocessors = at::cuda::getDeviceProperties(device_)->multiProcessorCount;
  cuda::launch_peer_operation(
      call, operation.idle ? multiprocessors : std::min(multiprocessors, kMultiprocessorsBesideOthers), stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
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
    if (shares_ && blocks[i].size() > 1) {
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
  for (const Placed& placed : outgoing.blocks) {
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
