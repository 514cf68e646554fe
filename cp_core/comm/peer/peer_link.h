// Lets ranks of one host write into each other's memory over NVLink or PCIe. Copy engines usually move the data, which
// leaves the multiprocessors to attention. A kernel moves it if it is many short pieces, with which copy engines are
// slow.
//
// Host threads exchange buffer addresses through shared memory (peer_board.h). Streams synchronise through flags in
// that memory. An operation on a stream does, in order:
//   1. raise the "ready" flag of each peer, which allows the peer to write into this rank's windows;
//   2. wait for each peer to raise that flag here;
//   3. write into the peers' windows;
//   4. raise the "arrived" flag of each peer, which says that the data is complete;
//   5. wait for each peer to raise that flag here.
// A host thread that enqueues an operation waits until the host threads of its peers have begun the same operation. No
// host thread waits for a device. CUDA graphs can capture an operation.
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
#include "cp_core/comm/windows.h"

namespace c10d {
class Store;
}

namespace cp_pool {

// The pause between two polls of a host thread. Short waits spin, since NCCL takes tens of microseconds to enqueue an
// operation. Longer waits leave the core to other threads.
class Pause {
 public:
  void operator()() const {
    using namespace std::chrono_literals;
    if (std::chrono::steady_clock::now() - start_ < 100us) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(50us);
    }
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

class PeerLink {
 public:
  using Clock = Communicator::Clock;

  struct Connection {
    std::shared_ptr<PeerLink> link;  // null on every rank or on none
    std::string why_not;             // why link is null
  };
  // Collective, on this thread's current device. There is no link if some rank cannot write into another's memory (it
  // is on another host, has no peer access, or CUDA IPC cannot share the memory), or if the environment of a rank
  // forbids it (peer_environment.h). shares: whether ranks share a GPU. If they do, no memory is closed before
  // close_idle_memory. Keys in the store start with `prefix`. Throws CommError if a rank does not come in time.
  static Connection connect(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix, int rank, int size,
                            bool shares, Clock::time_point deadline);
  PeerLink(PeerBoard board, int rank, int size, bool shares, c10::DeviceIndex device);
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;
  ~PeerLink();  // calls leave() and waits for the device

  struct Window {
    std::byte* first = nullptr;
    std::size_t bytes = 0;
  };
  // Ranks are numbered as in the link.
  struct Incoming {
    int rank = 0;
    std::vector<Window> windows;
  };
  struct Outgoing {
    int rank = 0;
    std::vector<PeerWindows::Put> blocks;  // to this peer, whose number in them is not used
    bool fills = false;                    // whether each block fills one window of the peer, in order
  };
  struct Operation {
    int group = 0;
    std::int64_t number = 0;  // the operation's number in the group; the same on all ranks that take part
    std::string_view name;    // the name by which error texts of peers call the operation
    std::string_view step;    // the first words of an error text
    std::vector<Incoming> incoming;
    std::vector<Outgoing> outgoing;
  };
  // Enqueues the operation on `stream`, which is the current one. check: called while this waits for peers, and may
  // throw. Throws CommError: timeout; failed if a peer is in another operation or blocks do not fit into its windows;
  // aborted if a peer left.
  void enqueue(const Operation& operation, c10::cuda::CUDAStream stream, Clock::time_point deadline,
               const std::function<void()>& check);

  // Collective; all operations must be complete on the device. Closes the memory of other ranks in which its owner has
  // no tensor, so that the owner may free it. number: the same on all ranks. check: as for enqueue. Throws CommError,
  // c10::Error.
  void close_idle_memory(std::int64_t number, Clock::time_point deadline, const std::function<void()>& check);

  // Ends every wait of this rank's device, and makes later operations of its peers fail. Callable from any thread, any
  // number of times.
  void leave(std::string_view reason);

 private:
  using Note = PeerBoard::Note;
  struct Heard;

  [[nodiscard]] std::string prove(Clock::time_point deadline);
  void write_proofs(const std::vector<std::vector<Note>>& windows, const Operation& operation);
  [[nodiscard]] Operation with_all(std::int64_t number, std::string_view name) const;
  [[nodiscard]] std::vector<Note> notes_for(const Incoming& incoming, const Operation& operation);
  void tell_gone(const std::vector<Note>& gone);
  void enqueue_copies(const Operation& operation, std::span<const std::vector<BlockCopy>> blocks,
                      c10::cuda::CUDAStream stream);
  [[nodiscard]] std::vector<std::vector<Note>> meet(const Operation& operation, Clock::time_point deadline,
                                                    const std::function<void()>& check);
  bool post_some(const Operation& operation, std::vector<std::span<const Note>>& left);
  bool take_some(const Operation& operation, std::vector<Heard>& heard);
  [[nodiscard]] std::optional<std::string> error_of_missing_peer(const Operation& operation,
                                                                 const std::vector<std::span<const Note>>& left,
                                                                 const std::vector<Heard>& heard) const;
  [[nodiscard]] std::vector<BlockCopy> resolved(const Outgoing& outgoing, const std::vector<Note>& windows,
                                                const Operation& operation);
  [[nodiscard]] void* flag(PeerBoard::Flag flag, int group, int from, int to) const;

  PeerBoard board_;
  int rank_;
  int size_;
  bool shares_;
  c10::DeviceIndex device_;
  std::byte* flags_on_device_ = nullptr;
  PeerMemory memory_;
  std::map<int, std::vector<Note>> gone_;  // by rank: notes on freed allocations that are still to be sent to it
  std::mutex leave_mutex_;
  std::jthread releaser_;
};

}  // namespace cp_pool
