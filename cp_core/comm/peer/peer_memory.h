// Memory of this rank's device as other ranks see it, and theirs as this one sees it: CUDA IPC, by allocations of
// cudaMalloc. What a rank has opened of another stays open until the other says that it gives the allocation up: to
// open a GiB takes 10 ms. CUDA's documentation wants memory closed before its owner frees it, so an owner gives up what
// holds no tensor before it may empty the allocator's cache (PeerLink::close_idle_memory). Only an allocator that runs
// out of memory frees some that is open: drivers keep it until the last rank closes it, and its owner says so when it
// can.
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
  ~PeerMemory();  // closes what is open: nothing on the device may use it any more

  // How other ranks can open `bytes` bytes of this device. Appends to `gone` the allocations that were described before
  // and are there no more. Throws c10::Error: not every memory can be opened.
  Note describe(const void* first, std::size_t bytes, std::vector<Note>& gone);
  // Where the window that `rank` described lies here. Throws c10::Error.
  std::byte* open(int rank, const Note& window);
  // `rank` has given up what it described: close_gone() closes it, which waits for everything on the device.
  void add_gone(int rank, const Note& gone);
  void close_gone();
  // What was described and holds no tensor, but for that of graphs; it must be described anew before it can be opened.
  [[nodiscard]] std::vector<Note> give_up_idle();

 private:
  static Note share(const cuda::Allocation& allocation);
  void find_gone(std::vector<Note>& gone);
  // What meets condition(first byte, note) goes from own_ to `gone`.
  template <typename Condition>
  void give_up(std::vector<Note>& gone, const Condition& condition);

  c10::DeviceIndex device_;
  std::map<const std::byte*, Note> own_;                        // by first byte: notes of whole allocations
  std::map<std::pair<int, std::uint64_t>, std::byte*> opened_;  // by rank and number
  std::vector<std::byte*> to_close_;
};

}  // namespace cp_pool
