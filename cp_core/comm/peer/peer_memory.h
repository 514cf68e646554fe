// Opens device memory between ranks by CUDA IPC, one allocation of cudaMalloc at a time: this rank's memory to others,
// and theirs to this one. An opened allocation stays open until its owner gives it up, since opening a GiB takes 10 ms.
// CUDA's documentation demands that memory is closed before its owner frees it. So an owner gives up allocations
// without tensors (PeerLink::close_idle_memory) before the allocator's cache may be emptied. An allocator that runs out
// of memory may still free an allocation that others have open: the driver keeps it until the last rank closes it, and
// the owner tells them as soon as it can.
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

  // Returns how other ranks can open `bytes` bytes of this device. Appends to `gone` the allocations that were
  // described earlier and have been freed since. Throws c10::Error if CUDA IPC cannot open the memory.
  Note describe(const void* first, std::size_t bytes, std::vector<Note>& gone);
  // Returns the address here of the window that `rank` described. Throws c10::Error.
  std::byte* open(int rank, const Note& window);
  // Notes that `rank` has given up the allocation. close_gone() closes it later, which waits for the whole device.
  void add_gone(int rank, const Note& gone);
  void close_gone();
  // Returns the described allocations that hold no tensor, except those of graphs, and forgets them: they must be
  // described again before others can open them.
  [[nodiscard]] std::vector<Note> give_up_idle();

 private:
  static Note share(const cuda::Allocation& allocation);
  void find_gone(std::vector<Note>& gone);
  // Moves entries of own_ for which condition(first byte, note) holds to `gone`.
  template <typename Condition>
  void give_up(std::vector<Note>& gone, const Condition& condition);

  c10::DeviceIndex device_;
  std::map<const std::byte*, Note> own_;                        // by first byte: notes of whole allocations
  std::map<std::pair<int, std::uint64_t>, std::byte*> opened_;  // by rank and number
  std::vector<std::byte*> to_close_;
};

}  // namespace cp_pool
