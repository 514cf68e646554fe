// A GpuLink with the NCCL communicators of one rank: connected together, watched together, aborted together. Hides what
// non-blocking NCCL asks of its callers; nccl_communicator.cpp builds its operations on this.
//
// No call into NCCL waits: NCCL works on threads of its own, and is polled. So the mutex around it is never held for
// long, and abort() always gets through.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <nccl.h>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "cp_core/comm/peer/gpu_link.h"

namespace c10d {
class Store;
}

namespace cp_pool {

class NcclLink final : public GpuLink {
 public:
  // Collective, on this thread's current device: connects `size` ranks and splits off the pairs and rings (groups inner
  // and outer), where group_ranks has them. started: a communicator of these ranks that NCCL connects already
  // (cuda/early_start.h), now the link's; null if this rank has none, whatever the others have: but where rank 0 has
  // none and another has one, they cannot be connected. Throws CommError; a timeout names the ranks that did not come.
  static std::shared_ptr<NcclLink> connect(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix,
                                           int rank, int size, std::chrono::milliseconds timeout,
                                           ncclComm_t started = nullptr);
  NcclLink(int rank, int size, c10::DeviceIndex device) : GpuLink(rank, size, device, /*shares=*/false) {}
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;
  ~NcclLink() override;  // aborts what is left

  // Calls NCCL with the group's communicator, then waits until NCCL has enqueued what was asked for. The first
  // operation between two ranks connects them, and so waits for the peer. Throws CommError.
  void enqueue(Group group, const std::function<ncclResult_t(ncclComm_t)>& call, const Wait& wait);
  // The same, at most until the deadline of the link.
  void enqueue(Group group, const std::string& step, const std::function<ncclResult_t(ncclComm_t)>& call);

 protected:
  void check_connections(const std::string& step) override;
  void abort_connections() override;

 private:
  void initialise(const ncclUniqueId& id, const Wait& wait);
  void adopt(ncclComm_t started, const Wait& wait);
  void split(Group group, int color, const Wait& wait);
  ncclResult_t poll(Group group, const std::string& step);
  void wait_until_ready(Group group, ncclResult_t state, const Wait& wait);

  static std::size_t index(Group group) { return static_cast<std::size_t>(group); }

  std::mutex comms_mutex_;
  std::array<ncclComm_t, 3> comms_{};  // null once aborted

  // Written by NCCL while a split is under way.
  ncclComm_t split_off_ = nullptr;
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
