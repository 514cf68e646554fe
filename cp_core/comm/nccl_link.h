// The NCCL communicators of one rank: connected together, watched together, aborted together. Hides what non-blocking
// NCCL asks of its callers; nccl_communicator.cpp builds its operations on this.
//
// One thread at a time calls everything but abort(), which is for any thread. No call into NCCL waits: NCCL works on
// threads of its own, and is polled. So the mutex around it is never held for long, and abort() always gets through.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <nccl.h>
#include <string>

#include <c10/cuda/CUDAEvent.h>
#include <c10/util/intrusive_ptr.h>

#include "cp_core/comm/communicator.h"
#include "cp_core/comm/peer_link.h"

namespace c10d {
class Store;
}

namespace cp_pool {

class NcclLink {
 public:
  using Clock = Communicator::Clock;
  enum class Group { cp = 0, inner = 1, outer = 2 };

  // Collective, on this thread's current device: connects `size` ranks and splits off the pairs and rings (groups inner
  // and outer), where group_ranks has them. started: a communicator of these ranks that NCCL connects already
  // (cuda/early_start.h), now the link's; null if this rank has none, whatever the others have: but where rank 0 has
  // none and another has one, they cannot be connected. Throws CommError; a timeout names the ranks that did not come.
  static std::shared_ptr<NcclLink> connect(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix,
                                           int rank, int size, std::chrono::milliseconds timeout,
                                           ncclComm_t started = nullptr);
  NcclLink(int rank, int size, c10::DeviceIndex device) : rank_(rank), size_(size), device_(device) {}
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;
  ~NcclLink();  // aborts what is left

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] bool has_pairs() const { return !group_ranks(rank_, size_).inner.empty(); }
  [[nodiscard]] c10::DeviceIndex device() const { return device_; }

  // Null where ranks cannot write into each other's memory: why_no_peers() says why.
  [[nodiscard]] PeerLink* peers() const { return peers_.get(); }
  [[nodiscard]] const std::string& why_no_peers() const { return why_no_peers_; }

  void set_deadline(Clock::time_point deadline) { deadline_ = deadline; }
  [[nodiscard]] Clock::time_point deadline() const { return deadline_; }

  // A wait of the host's.
  struct Wait {
    std::string step;  // opens the text of an error, e.g. "rank 0: all_gather, all_gather forward"
    Clock::time_point deadline;
    std::function<std::string()> explain;  // gives the text of a timeout
    std::function<void()> look;            // called every 20 ms, if there is one; may throw
  };

  // Calls NCCL with the group's communicator, then waits until NCCL has enqueued what was asked for. The first
  // operation between two ranks connects them, and so waits for the peer. Throws CommError.
  void enqueue(Group group, const std::function<ncclResult_t(ncclComm_t)>& call, const Wait& wait);
  // The same, at most until the deadline of the link.
  void enqueue(Group group, const std::string& step, const std::function<ncclResult_t(ncclComm_t)>& call);

  // Remembers an operation whose end `done` marks, until it is complete.
  void add_pending(std::string step, std::shared_ptr<c10::cuda::CUDAEvent> done);
  // Waits for everything on the current stream, at most until the deadline. Throws CommError.
  void synchronize(const std::string& step);
  // Collective: PeerLink::close_idle_memory, if there are peers, when the device has ended all operations. Throws
  // CommError.
  void close_idle_memory(std::int64_t number, const Wait& wait);
  // Waits until `event` has happened. Throws CommError.
  void wait_for(const c10::cuda::CUDAEvent& event, const Wait& wait);

  void throw_if_failed(const std::string& step) const;
  [[nodiscard]] bool failed() const;
  // Makes every wait to come end with CommError::aborted, and throws CommError(kind, text); or, if the link had failed
  // before, throws that `step` was aborted. The groups still have to be aborted, which ends what runs on the device and
  // takes a second: abort() or the destructor does.
  [[noreturn]] void fail(CommError::Kind kind, const std::string& step, const std::string& text);
  // From any thread, any number of times; the first reason stays.
  void abort(const std::string& reason);

 private:
  void initialise(const ncclUniqueId& id, const Wait& wait);
  void adopt(ncclComm_t started, const Wait& wait);
  void split(Group group, int color, const Wait& wait);
  ncclResult_t poll(Group group, const std::string& step);
  void wait_until_ready(Group group, ncclResult_t state, const Wait& wait);
  void wait_until(const std::function<bool()>& done, const Wait& wait);
  void check_for_errors(const std::string& step);
  [[nodiscard]] std::string oldest_pending() const;
  void forget_complete();

  static std::size_t index(Group group) { return static_cast<std::size_t>(group); }

  int rank_;
  int size_;
  c10::DeviceIndex device_;
  Clock::time_point deadline_ = Clock::time_point::max();

  std::shared_ptr<PeerLink> peers_;
  std::string why_no_peers_;

  mutable std::mutex mutex_;
  std::array<ncclComm_t, 3> comms_{};  // null once aborted
  bool failed_ = false;
  std::string reason_;

  // Written by NCCL while a split is under way.
  ncclComm_t split_off_ = nullptr;

  struct Pending {
    std::string step;
    std::shared_ptr<c10::cuda::CUDAEvent> done;
  };
  std::deque<Pending> pending_;
};

// The first error of several NCCL calls, or else the result of the last.
class NcclResults {
 public:
  NcclResults& operator<<(ncclResult_t result) {
    if (value_ == ncclSuccess || value_ == ncclInProgress) value_ = result;
    return *this;
  }
  [[nodiscard]] ncclResult_t value() const { return value_; }

 private:
  ncclResult_t value_ = ncclSuccess;
};

}  // namespace cp_pool
