// Ranks of one host that write into each other's memory: over NVLink or PCIe, by the copy engines of their devices,
// which leaves the multiprocessors to attention; or by a kernel (peer_kernel.h), of all multiprocessors where there is
// nothing else to do, of a few where there are many short pieces, with which engines are slow.
// Hosts tell each other where to write (peer_board.h); devices tell each other when, by flags: in host memory those
// that streams write and wait for, in the memory of the device that waits those of kernels. So an operation of a stream
// is, in order:
//   say that the own windows may be written to; wait until those of the peers may be; write to them; say so; wait until
//   what the peers write here is there.
// A host that enqueues an operation waits until its peers' hosts have come to it; no host waits for a device. Graphs
// can capture all of it.
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

namespace c10d {
class Store;
}

namespace cp_pool {

class PeerLink {
 public:
  using Clock = Communicator::Clock;

  struct Connection {
    std::shared_ptr<PeerLink> link;  // null on every rank or on none
    std::string why_not;             // if null
  };
  // Collective, on this thread's current device. There is no link where a rank cannot write into another's memory
  // (other hosts, no peer access, memory that CUDA IPC does not share), or where the environment of one forbids it
  // (peer_environment.h). shares: ranks share a GPU. Then no kernel waits for a peer, which would take the device from
  // the rank that it waits for, and nothing is closed before close_idle_memory. Keys in the store start with `prefix`.
  // Throws CommError: a rank did not come in time.
  static Connection connect(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix, int rank, int size,
                            bool shares, Clock::time_point deadline);
  PeerLink(PeerBoard board, int rank, int size, bool shares, c10::DeviceIndex device);
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;
  ~PeerLink();  // leaves, if leave() was not called; waits for the device

  struct Window {
    std::byte* first = nullptr;
    std::size_t bytes = 0;
  };
  // A block and its place: `first` is a byte of the peer's window.
  struct Placed {
    std::size_t window = 0;
    std::int64_t first = 0;
    BlockCopy block;
  };
  // Ranks are those of the link.
  struct Incoming {
    int rank = 0;
    std::vector<Window> windows;
  };
  struct Outgoing {
    int rank = 0;
    std::vector<Placed> blocks;
    bool fills = false;  // the blocks are as many as the peer's windows, one for each, and as large
  };
  struct Operation {
    int group = 0;
    std::int64_t number = 0;  // in the group: ranks that meet must be at the same one
    std::string_view name;    // to peers
    std::string_view step;    // opens the text of an error
    std::vector<Incoming> incoming;
    std::vector<Outgoing> outgoing;
    // The device has nothing else to do meanwhile; the same on all ranks.
    bool idle = false;
    std::vector<BlockCopy> own;  // then copied here, beside the others
    // This rank is for a kernel while there is other work. Only where the peers are all other ranks of the group: if
    // one rank is for it, all use it.
    bool by_kernel = false;
  };
  // Enqueues the operation on `stream`, which is the current one. check is called while this waits, and may throw.
  // Throws CommError: timeout; failed, if a peer is at another operation or windows do not fit; aborted, if a peer
  // left.
  void enqueue(Operation operation, c10::cuda::CUDAStream stream, Clock::time_point deadline,
               const std::function<void()>& check);

  // Collective, when the device has ended all operations: no rank has memory of another open any more that holds no
  // tensor there, so that the other may give it back. number: the same on all ranks. check as for enqueue. Throws
  // CommError, c10::Error.
  void close_idle_memory(std::int64_t number, Clock::time_point deadline, const std::function<void()>& check);

  // Ends what this rank's device waits for and all later operations of its peers. Any thread, any number of times.
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
  std::map<int, std::byte*> theirs_;       // by rank: its words, as they lie here
  std::map<int, std::vector<Note>> gone_;  // by rank: not yet told
  std::mutex leave_mutex_;
  std::jthread releaser_;
};

}  // namespace cp_pool
