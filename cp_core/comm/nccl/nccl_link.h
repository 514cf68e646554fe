// A GpuLink with the NCCL communicators of one rank, which are connected, watched and aborted together. It polls
// non-blocking NCCL on behalf of gpu_groups.cpp, which builds its operations on it.
//
// No call into NCCL blocks: NCCL works on threads of its own and is polled. The mutex around it is therefore never held
// for long, and abort() is never blocked.
#pragma once

#include <chrono>
#include <functional>
#include <map>
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
  // Collective, on this thread's current device: connects `size` ranks and splits off the inner and outer groups where
  // group_ranks has them. Throws CommError; a timeout names the ranks that did not come.
  static std::shared_ptr<NcclLink> connect(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix,
                                           int rank, int size, std::chrono::milliseconds timeout);
  NcclLink(int rank, int size, c10::DeviceIndex device) : GpuLink(rank, size, device, /*shares=*/false) {}
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;
  ~NcclLink() override;  // aborts the communicators

  void connect_divided(const Division& division) override;

  // Calls NCCL with the group's communicator, then waits until NCCL has enqueued the operation. The first operation
  // between two ranks connects them, and so waits for the peer. Throws CommError.
  void enqueue(const GroupTag& group, const std::function<ncclResult_t(ncclComm_t)>& call, const Wait& wait);

 protected:
  void check_connections(const std::string& step) override;
  void abort_connections() override;

 private:
  void initialise(const ncclUniqueId& id, const Wait& wait);
  // Splits off every group that the ranks have once they are so divided.
  void split_all(const Division& division, const Wait& wait);
  void split(const GroupTag& group, int color, const Wait& wait);
  ncclResult_t poll(const GroupTag& group, const std::string& step);
  void wait_until_ready(const GroupTag& group, ncclResult_t state, const Wait& wait);
  // Returns null once aborted. The mutex must be held.
  [[nodiscard]] ncclComm_t comm_of(const GroupTag& group) const;

  std::mutex comms_mutex_;
  std::map<GroupTag, ncclComm_t> comms_;  // empty once aborted

  // NCCL writes the new communicator here while a split is under way.
  ncclComm_t split_off_ = nullptr;
};

}  // namespace cp_pool
