// The state that the communicators of one GPU rank share: the peers whose memory it writes to, the deadline, the list
// of operations that are not complete, and the abort. NcclLink adds NCCL. Where ranks share a GPU, peer copies carry
// everything, since NCCL takes two ranks on one device only as hosts of their own, between which it uses sockets.
//
// abort() may be called from any thread. Everything else must be called by one thread at a time.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <c10/core/Device.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/util/intrusive_ptr.h>

#include "cp_core/comm/communicator.h"
#include "cp_core/comm/peer/peer_link.h"

namespace c10d {
class Store;
}

namespace cp_pool {

// Where ranks share a GPU, no device memory may be freed between the enqueueing of an exchange and its end: cudaFree
// and cudaIpcCloseMemHandle wait for everything on the device, and so for a peer that may never come.
// During its lifetime LibTorch's caching allocator frees no memory of the device. An allocation that finds no memory
// fails at once, whereas the allocator would otherwise free its cache and try again.
class HeldMemory {
 public:
  explicit HeldMemory(c10::DeviceIndex device);
  HeldMemory(const HeldMemory&) = delete;
  HeldMemory& operator=(const HeldMemory&) = delete;
  ~HeldMemory();

 private:
  c10::DeviceIndex device_;
  c10::MempoolId_t pool_;
};

class GpuLink {
 public:
  using Clock = Communicator::Clock;
  static constexpr std::chrono::milliseconds kBetweenLooks{20};

  // Collective, on this thread's current device: connects `size` ranks of one host, some of which share a GPU, by peer
  // copies alone. Throws CommError; a timeout names the ranks that did not come.
  static std::shared_ptr<GpuLink> connect_sharing(const c10::intrusive_ptr<c10d::Store>& store,
                                                  const std::string& prefix, int rank, int size,
                                                  std::chrono::milliseconds timeout);
  // shares: whether ranks of this link share a GPU.
  GpuLink(int rank, int size, c10::DeviceIndex device, bool shares)
      : rank_(rank), size_(size), device_(device), shares_(shares) {}
  GpuLink(const GpuLink&) = delete;
  GpuLink& operator=(const GpuLink&) = delete;
  virtual ~GpuLink();  // calls PeerLink::leave()

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] c10::DeviceIndex device() const { return device_; }
  [[nodiscard]] bool shares() const { return shares_; }

  // Null where ranks cannot write into each other's memory (peer_copy_obstacle() says why), and for a single rank.
  [[nodiscard]] PeerLink* peers() const { return peers_.get(); }
  [[nodiscard]] const std::string& peer_copy_obstacle() const { return why_no_peers_; }

  // Collective over all ranks: prepares the communicators of the groups. Throws CommError.
  virtual void connect_divided(const Division& /*division*/) {}

  void set_deadline(Clock::time_point deadline) { deadline_ = deadline; }
  [[nodiscard]] Clock::time_point deadline() const { return deadline_; }

  // Describes a wait of a host thread.
  struct Wait {
    std::string step;  // the first words of an error text, e.g. "rank 0: all_gather, all_gather forward"
    Clock::time_point deadline;
    // Returns the text of a timeout; empty: "<step>: timed out".
    std::function<std::string()> explain{};  // NOLINT(readability-redundant-member-init): initializers leave it out
    // Called every kBetweenLooks unless empty; may throw.
    std::function<void()> look{};  // NOLINT(readability-redundant-member-init): as above
  };

  // Called before an operation is enqueued that may wait for peers on the device. Where ranks share a GPU, it keeps the
  // allocator from freeing memory (HeldMemory) until no operation is pending.
  void hold_memory();
  // Remembers an operation until the event `done`, which marks its end, has happened.
  void add_pending(std::string step, std::shared_ptr<c10::cuda::CUDAEvent> done);
  // Waits for all work on the current stream, at most until the deadline. Throws CommError.
  void synchronize(const std::string& step);
  // Collective: waits until all operations are complete, then calls PeerLink::close_idle_memory. Does nothing without
  // peers. Throws CommError.
  void close_idle_memory(std::int64_t number, const Wait& wait);
  // Waits until `event` has happened. Throws CommError.
  void wait_for(const c10::cuda::CUDAEvent& event, const Wait& wait);

  void throw_if_failed(const std::string& step) const;
  [[nodiscard]] bool failed() const;
  // Makes every later wait end with CommError::Kind::aborted, and throws CommError(kind, text). If the link had failed
  // before, throws that `step` was aborted. Operations on the device go on until abort() or the destructor ends them,
  // which takes a second with NCCL.
  [[noreturn]] void fail(CommError::Kind kind, const std::string& step, const std::string& text);
  // Ends all waits on the host and on the device. Callable from any thread, any number of times. The first reason is
  // kept.
  void abort(const std::string& reason);

 protected:
  // Collective. Throws CommError.
  void connect_peers(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix,
                     Clock::time_point deadline);
  // Publishes in the store that this rank has come.
  void announce(c10d::Store& store, const std::string& prefix) const;
  // Names the ranks that have not, for the text of a timeout.
  [[nodiscard]] static std::string absent_ranks(c10d::Store& store, const std::string& prefix, int size);

  // Called while a wait goes on; throws if a connection has failed.
  virtual void check_connections(const std::string& step) { throw_if_failed(step); }
  // Ends the operations of the connections on the device. Called from any thread.
  virtual void abort_connections() {}

  void wait_until(const std::function<bool()>& done, const Wait& wait);

 private:
  [[nodiscard]] std::string mark_failed(const std::string& reason);
  [[nodiscard]] std::string oldest_pending() const;
  void forget_complete();

  int rank_;
  int size_;
  c10::DeviceIndex device_;
  bool shares_;
  Clock::time_point deadline_ = Clock::time_point::max();

  std::shared_ptr<PeerLink> peers_;
  std::string why_no_peers_;

  mutable std::mutex mutex_;
  bool failed_ = false;
  std::string reason_;

  struct Pending {
    std::string step;
    std::shared_ptr<c10::cuda::CUDAEvent> done;
  };
  std::deque<Pending> pending_;
  std::optional<HeldMemory> held_;
};

}  // namespace cp_pool
