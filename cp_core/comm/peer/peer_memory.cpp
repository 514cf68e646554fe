#include "cp_core/comm/peer/peer_memory.h"

#include <cstring>
#include <cuda_runtime_api.h>
#include <set>
#include <string_view>

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>

#include "cp_core/cuda/driver_calls.h"

namespace cp_pool {
namespace {

// The segments that would be freed if the caching allocator's cache were emptied. Segments of graphs' pools are not
// included, since a graph may use memory that holds no tensor.
std::set<const std::byte*> idle_segments(c10::DeviceIndex device) {
  constexpr c10::MempoolId_t kEverybodys{0, 0};
  std::set<const std::byte*> idle;
  const auto snapshot = c10::cuda::CUDACachingAllocator::snapshot(kEverybodys, /*include_traces=*/false);
  for (const auto& segment : snapshot.segments) {
    const bool everybodys = segment.device == device && segment.owner_private_pool_id == kEverybodys;
    if (!everybodys || segment.allocated_size > 0) continue;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): as the allocator has it
    idle.insert(reinterpret_cast<const std::byte*>(segment.address));
  }
  return idle;
}

}  // namespace

static_assert(sizeof(cudaIpcMemHandle_t) == PeerBoard::kTextBytes);

PeerMemory::~PeerMemory() {
  const c10::cuda::CUDAGuard guard(device_);
  for (const auto& [key, address] : opened_) C10_CUDA_CHECK_WARN(cudaIpcCloseMemHandle(address));
  for (std::byte* const address : to_close_) C10_CUDA_CHECK_WARN(cudaIpcCloseMemHandle(address));
}

PeerBoard::Note PeerMemory::describe(const void* first, std::size_t bytes, std::vector<Note>& gone) {
  const cuda::Allocation allocation = cuda::allocation_of(first);
  auto own = own_.find(allocation.first);
  if (own == own_.end() || own->second.number != allocation.number) {
    // The allocation is new, so old ones may have been freed for it.
    find_gone(gone);
    own = own_.emplace(allocation.first, share(allocation)).first;
  }
  Note note = own->second;
  note.first = static_cast<std::uint64_t>(static_cast<const std::byte*>(first) - allocation.first);
  note.bytes = bytes;
  return note;
}

PeerBoard::Note PeerMemory::share(const cuda::Allocation& allocation) {
  // Relaxed, since a capture may be in progress and this call enqueues nothing.
  const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
  cudaIpcMemHandle_t handle;
  C10_CUDA_CHECK(cudaIpcGetMemHandle(&handle, const_cast<std::byte*>(allocation.first)));
  Note note;
  note.kind = Note::Kind::window;
  note.number = allocation.number;
  std::memcpy(note.text, &handle, sizeof handle);
  return note;
}

void PeerMemory::find_gone(std::vector<Note>& gone) {
  give_up(gone, [](const std::byte* first, const Note& own) { return cuda::allocation_number(first) != own.number; });
}

std::vector<PeerBoard::Note> PeerMemory::give_up_idle() {
  std::vector<Note> gone;
  if (own_.empty()) return gone;
  const std::set<const std::byte*> idle = idle_segments(device_);
  give_up(gone, [&idle](const std::byte* first, const Note& /*own*/) { return idle.contains(first); });
  return gone;
}

template <typename Condition>
void PeerMemory::give_up(std::vector<Note>& gone, const Condition& condition) {
  std::erase_if(own_, [&](const auto& entry) {
    const auto& [first, own] = entry;
    if (!condition(first, own)) return false;
    gone.push_back(own);
    gone.back().kind = Note::Kind::gone;
    return true;
  });
}

std::byte* PeerMemory::open(int rank, const Note& window) {
  auto found = opened_.find({rank, window.number});
  if (found == opened_.end()) {
    const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, window.text, sizeof handle);
    void* opened = nullptr;
    C10_CUDA_CHECK(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess));
    found = opened_.emplace(std::pair{rank, window.number}, static_cast<std::byte*>(opened)).first;
  }
  return found->second + window.first;
}

void PeerMemory::add_gone(int rank, const Note& gone) {
  const auto found = opened_.find({rank, gone.number});
  if (found == opened_.end()) return;
  to_close_.push_back(found->second);
  opened_.erase(found);
}

void PeerMemory::close_gone() {
  const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
  while (!to_close_.empty()) {
    std::byte* const address = to_close_.back();
    to_close_.pop_back();
    C10_CUDA_CHECK(cudaIpcCloseMemHandle(address));
  }
}

}  // namespace cp_pool
