// The communicator of GPU ranks that have a GPU each. NCCL carries sums, and everything else where ranks cannot write
// into each other's memory.
#pragma once

#include <functional>
#include <memory>
#include <nccl.h>
#include <string>
#include <vector>

#include "cp_core/comm/nccl/nccl_link.h"
#include "cp_core/comm/peer/peer_communicator.h"

namespace cp_pool {

class NcclCommunicator final : public PeerCommunicator {
 public:
  NcclCommunicator(const std::shared_ptr<NcclLink>& link, const GroupTag& group, std::vector<int> members,
                   const c10::intrusive_ptr<c10d::Store>& store, const std::string& barrier_prefix);

  [[nodiscard]] std::string description() const override;

 protected:
  void send_and_receive(const Place& place, std::span<const Message> sends, std::span<const Message> receives) override;
  void gather_parts(const Place& place, const at::Tensor& out, const at::Tensor& in) override;
  void sum_parts(const Place& place, at::Tensor& out, const at::Tensor& in) override;
  void reduce(const Place& place, at::Tensor& inout, ReduceOp op) override;
  void gather_places(at::Tensor& all, const at::Tensor& mine, std::int64_t barrier, const GpuLink::Wait& wait) override;

 private:
  void enqueue(const Place& place, const std::function<ncclResult_t(ncclComm_t)>& call);

  std::shared_ptr<NcclLink> link_;
};

}  // namespace cp_pool
