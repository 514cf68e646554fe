// Memory of this rank's device as other ranks see it, and theirs as this one sees it: CUDA IPC, by allocations of
// cudaMalloc. What a rank has opened of another stays open until it closes all, or the other says that the allocation
// is gone. CUDA's documentation wants memory closed before its owner frees it. So ranks close all before they may give
// back what they have cached; only an allocator that runs out of memory frees some while others have it open. Drivers
// keep such memory until the last of them closes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <c10/core/Device.h>

#include "cp_core/comm/peer_board.h"

namespace cp_pool {

namespace cuda {
struct Allocation;
}

class PeerMemory {
 public:
  using Note = PeerBoard::Note;

  explicit PeerMemory(c10::DeviceIndex device) : device_(device) {}
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  ~PeerMemory();  // closes what is open: nothing on the device may use it any more

  // How other ranks can open `bytes` bytes of this device. Appends to `gone` the allocations that were described before
  // and are there no more. Throws c10::Error: not every memory can be opened.
  Note describe(const void* first, std::size_t bytes, std::vector<Note>& gone);
  // Where the window that `rank` described lies here. Throws c10::Error.
  std::byte* open(int rank, const Note& window);
  void close(int rank, const Note& gone);
  // All that is open, and forgets what was described: for when every rank does. Nothing on the device may use it any
  // more. Throws c10::Error.
  void close_all();

 private:
  static Note share(const cuda::Allocation& allocation);
  void find_gone(std::vector<Note>& gone);

  c10::DeviceIndex device_;
  std::map<const std::byte*, Note> own_;                        // by first byte: notes of whole allocations
  std::map<std::pair<int, std::uint64_t>, std::byte*> opened_;  // by rank and number
};

}  // namespace cp_pool
