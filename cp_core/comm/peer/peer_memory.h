// Opens device memory between ranks by CUDA IPC, in whole allocations of cudaMalloc: this rank's memory to others, and
// theirs to this rank. An opened allocation stays open until its owner gives it up, since opening a GiB takes 10 ms.
//
// CUDA's documentation demands that memory is closed before its owner frees it. An owner therefore gives up allocations
// without tensors (PeerLink::close_idle_memory) before the allocator's cache may be emptied. An allocator that runs out
// of memory may still free an allocation that others have open. The driver then keeps the memory until the last rank
// closes it, and the owner notifies the other ranks in its next operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <c10/core/Device.h>

#include "cp_core/comm/peer/peer_board.h"

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
  ~PeerMemory();  // closes all memory of other ranks; nothing on the device may use it any more

  // Returns the note with which other ranks can open `bytes` bytes of this device. Appends to `gone` notes on
  // allocations that were described earlier and have been freed since. Throws c10::Error if CUDA IPC cannot share the
  // memory.
  Note describe(const void* first, std::size_t bytes, std::vector<Note>& gone);
  // Returns the address in this process of the window that `rank` described. Throws c10::Error.
  std::byte* open(int rank, const Note& window);
  // Records that `rank` has given up the allocation. close_gone() closes it later, since that waits for the whole
  // device.
  void add_gone(int rank, const Note& gone);
  void close_gone();
  // Returns notes on the described allocations that hold no tensor, except those of CUDA graphs, and forgets them.
  // Others can open them only after they have been described again.
  [[nodiscard]] std::vector<Note> give_up_idle();

 private:
  static Note share(const cuda::Allocation& allocation);
  void find_gone(std::vector<Note>& gone);
  // Moves entries of own_ for which condition(first byte, note) holds to `gone`.
  template <typename Condition>
  void give_up(std::vector<Note>& gone, const Condition& condition);

  c10::DeviceIndex device_;
  std::map<const std::byte*, Note> own_;                        // by first byte: described allocations of this rank
  std::map<std::pair<int, std::uint64_t>, std::byte*> opened_;  // by rank and the allocation's number
  std::vector<std::byte*> to_close_;
};

}  // namespace cp_pool
