// Ranks of one host that write into each other's memory over NVLink or PCIe. Copy engines move the data, which leaves
// the multiprocessors to attention. A kernel (peer_kernel.h) moves it where there is nothing else to do, with all
// multiprocessors; and, with a few of them, where it is many short pieces, with which copy engines are slow.
//
// Host threads exchange buffer addresses through shared memory (peer_board.h). Devices synchronise by flags. Streams
// write and wait for flags in host memory; kernels have theirs in the memory of the device that waits. An operation on
// a stream is, in order:
//   1. raise the flag that this rank's windows may be written, for each peer;
//   2. wait for that flag of each peer;
//   3. write into the peers' windows;
//   4. raise the flag that the data is there, for each peer;
//   5. wait for that flag of each peer.
// A host thread that enqueues an operation waits until the host threads of its peers have come to it. No host waits for
// a device. CUDA graphs can capture all of it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/intrusive_ptr.h>

#include "cp_core/comm/communicator.h"
#include "cp_core/comm/peer/peer_board.h"
#include "cp_core/comm/peer/peer_memory.h"
#include "cp_core/thd/block_copy.h"

namespace c10d {
class Store;
}

namespace cp_pool {

class PeerLink {
 public:
  using Clock = Communicator::Clock;

  struct Connection {
    std::shared_ptr<PeerLink> link;  // null on every rank or on none
    std::string why_not;             // why link is null
  };
  // Collective, on this thread's current device. There is no link where a rank cannot write into another's memory
  // (another host, no peer access, memory that CUDA IPC does not share), or where the environment of a rank forbids it
  // (peer_environment.h). shares: ranks share a GPU. No kernel then waits for a peer, since it would take the device
  // from the rank that it waits for, and no memory is closed before close_idle_memory. Keys in the store start with
  // `prefix`. Throws CommError if a rank does not come in time.
  static Connection connect(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix, int rank, int size,
                            bool shares, Clock::time_point deadline);
  PeerLink(PeerBoard board, int rank, int size, bool shares, c10::DeviceIndex device);
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;
  ~PeerLink();  // calls leave() if that has not been done, and waits for the device

  struct Window {
    std::byte* first = nullptr;
    std::size_t bytes = 0;
  };
  // A block to copy and its place: it begins at byte `first` of the peer's window number `window`.
  struct Placed {
    std::size_t window = 0;
    std::int64_t first = 0;
    BlockCopy block;
  };
  // Ranks are numbered as in the link.
  struct Incoming {
    int rank = 0;
    std::vector<Window> windows;
  };
  struct Outgoing {
    int rank = 0;
    std::vector<Placed> blocks;
    bool fills = false;  // each block fills one window of the peer, in order
  };
  struct Operation {
    int group = 0;
    std::int64_t number = 0;  // of the operation in the group: it must be the same on all ranks that meet
    std::string_view name;    // what peers are told
    std::string_view step;    // opens the text of an error
    std::vector<Incoming> incoming;
    std::vector<Outgoing> outgoing;
    // The device has nothing else to do meanwhile; the same on all ranks.
    bool idle = false;
    std::vector<BlockCopy> own;  // if idle: blocks on this device, copied at the same time
    // This rank asks for a kernel although the device is busy. If one rank asks, all use a kernel. Allowed only if the
    // peers are all other ranks of the group.
    bool by_kernel = false;
  };
  // Enqueues the operation on `stream`, which is the current one. check is called while this waits, and may throw.
  // Throws CommError with kind timeout; failed if a peer is at another operation or blocks do not fit into its windows;
  // aborted if a peer left.
  void enqueue(Operation operation, c10::cuda::CUDAStream stream, Clock::time_point deadline,
               const std::function<void()>& check);

  // Collective; the device must have ended all operations. Closes the memory of other ranks that holds no tensor there,
  // so that its owner may free it. number: the same on all ranks. check: as for enqueue. Throws CommError, c10::Error.
  void close_idle_memory(std::int64_t number, Clock::time_point deadline, const std::function<void()>& check);

  // Ends every wait of this rank's device, and makes later operations of its peers fail. Any thread, any number of
  // times.
  void leave(std::string_view reason);

 private:
  using Note = PeerBoard::Note;
  struct Heard;

  [[nodiscard]] std::string prove(Clock::time_point deadline);
  [[nodiscard]] std::int64_t proof_place(int rank) const;
  void write_proofs(const std::vector<std::vector<Note>>& windows, const Operation& operation);
  [[nodiscard]] Operation with_all(std::int64_t number, std::string_view name) const;
  [[nodiscard]] std::vector<Note> notes_for(const Incoming& incoming, const Operation& operation);
  void tell_gone(const std::vector<Note>& gone);
  void enqueue_kernel(const Operation& operation, std::span<const BlockCopy> blocks, c10::cuda::CUDAStream stream);
  void enqueue_copies(const Operation& operation, std::span<const std::vector<BlockCopy>> blocks,
                      c10::cuda::CUDAStream stream);
  [[nodiscard]] std::vector<std::vector<Note>> meet(Operation& operation, Clock::time_point deadline,
                                                    const std::function<void()>& check);
  bool post_some(const Operation& operation, std::vector<std::span<const Note>>& left);
  bool take_some(Operation& operation, std::vector<Heard>& heard);
  void throw_if_left(const Operation& operation) const;
  [[nodiscard]] std::vector<BlockCopy> resolved(const Outgoing& outgoing, const std::vector<Note>& windows,
                                                const Operation& operation);
  [[nodiscard]] void* flag(PeerBoard::Flag flag, int group, int from, int to) const;

  PeerBoard board_;
  int rank_;
  int size_;
  bool shares_;
  c10::DeviceIndex device_;
  std::byte* flags_on_device_ = nullptr;
  at::Tensor words_;  // on the device: flags of kernels as on the board, turns of the groups, proofs of connection
  PeerMemory memory_;
  std::map<int, std::byte*> theirs_;       // by rank: the address here of its words_
  std::map<int, std::vector<Note>> gone_;  // by rank: freed allocations that it has not been told of
  std::mutex leave_mutex_;
  std::jthread releaser_;
};

}  // namespace cp_pool
