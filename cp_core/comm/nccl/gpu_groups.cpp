#include "cp_core/comm/nccl/gpu_groups.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <nccl.h>
#include <stdexcept>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "cp_core/comm/nccl/nccl_link.h"
#include "cp_core/comm/peer/peer_communicator.h"
#include "cp_core/cuda/delay.h"

namespace cp_pool {
namespace {

// Dtypes and operators for NCCL's reductions. Everything else that NCCL moves is bytes.

// Throws std::invalid_argument if NCCL has no such dtype.
ncclDataType_t reduction_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kHalf:
      return ncclFloat16;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kInt:
      return ncclInt32;
    case at::kLong:
      return ncclInt64;
    case at::kChar:
      return ncclInt8;
    case at::kByte:
    case at::kBool:
      return ncclUint8;
    default:
      throw std::invalid_argument(fmt::format("no reduction of {}", c10::toString(tensor.scalar_type())));
  }
}

ncclRedOp_t reduction_of(const at::Tensor& tensor, ReduceOp op) {
  // The sum of booleans is their logical "or".
  return op == ReduceOp::max || tensor.scalar_type() == at::kBool ? ncclMax : ncclSum;
}

// True if the operands must be widened to fp32, so that sums of 16-bit floats are rounded once.
bool widens(const at::Tensor& tensor, ReduceOp op) {
  return op == ReduceOp::sum && at::isReducedFloatingType(tensor.scalar_type());
}

std::size_t count_of(const at::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel());
}

// The communicator of GPU ranks that have a GPU each. NCCL carries sums, and everything else where ranks cannot write
// into each other's memory.
class NcclCommunicator final : public PeerCommunicator {
 public:
  NcclCommunicator(const std::shared_ptr<NcclLink>& link, const GroupTag& group, std::vector<int> members,
                   const c10::intrusive_ptr<c10d::Store>& store, const std::string& barrier_prefix)
      : PeerCommunicator(link, group, std::move(members), store, barrier_prefix), link_(link) {}

  [[nodiscard]] std::string description() const override {
    if (link_->peers() != nullptr) return "NCCL and peer copies";
    return fmt::format("NCCL (no peer copies: {})", link_->peer_copy_obstacle());
  }

 protected:
  void send_and_receive(const Place& place, std::span<const Message> sends,
                        std::span<const Message> receives) override {
    if (has_peers()) return PeerCommunicator::send_and_receive(place, sends, receives);
    const auto empty = [](const Message& message) { return message.tensor.numel() == 0; };
    if (std::ranges::all_of(sends, empty) && std::ranges::all_of(receives, empty)) return;
    enqueue(place, [&](ncclComm_t comm) {
      // The first error, or else the result of the last call.
      ncclResult_t result = ncclGroupStart();
      const auto add = [&result](ncclResult_t next) {
        if (result == ncclSuccess || result == ncclInProgress) result = next;
      };
      for (const auto& [tensor, from] : receives) {
        if (tensor.numel() == 0) continue;
        add(ncclRecv(tensor.mutable_data_ptr(), tensor.nbytes(), ncclInt8, from, comm, stream()));
      }
      for (const auto& [tensor, to] : sends) {
        if (tensor.numel() == 0) continue;
        add(ncclSend(tensor.const_data_ptr(), tensor.nbytes(), ncclInt8, to, comm, stream()));
      }
      add(ncclGroupEnd());
      return result;
    });
  }

  void gather_parts(const Place& place, const at::Tensor& out, const at::Tensor& in) override {
    if (has_peers()) return PeerCommunicator::gather_parts(place, out, in);
    enqueue(place, [&](ncclComm_t comm) {
      return ncclAllGather(in.const_data_ptr(), out.mutable_data_ptr(), in.nbytes(), ncclInt8, comm, stream());
    });
  }

  void sum_parts(const Place& place, at::Tensor& out, const at::Tensor& in) override {
    const bool wide = widens(in, ReduceOp::sum);
    const at::Tensor all = wide ? in.to(at::kFloat) : in;
    const at::Tensor sum = wide ? at::empty(out.sizes(), out.options().dtype(at::kFloat)) : out;
    enqueue(place, [&](ncclComm_t comm) {
      return ncclReduceScatter(all.const_data_ptr(), sum.mutable_data_ptr(), count_of(sum), reduction_type(sum),
                               reduction_of(sum, ReduceOp::sum), comm, stream());
    });
    if (wide) out.copy_(sum);
  }

  void reduce(const Place& place, at::Tensor& inout, ReduceOp op) override {
    const bool wide = widens(inout, op);
    const at::Tensor sum = wide ? inout.to(at::kFloat) : inout;
    enqueue(place, [&](ncclComm_t comm) {
      return ncclAllReduce(sum.const_data_ptr(), sum.mutable_data_ptr(), count_of(sum), reduction_type(sum),
                           reduction_of(sum, op), comm, stream());
    });
    if (wide) inout.copy_(sum);
  }

  void gather_places(at::Tensor& all, const at::Tensor& mine, std::int64_t /*barrier*/,
                     const GpuLink::Wait& wait) override {
    const auto gather = [&](ncclComm_t comm) {
      return ncclAllGather(mine.const_data_ptr(), all.mutable_data_ptr(), count_of(mine), ncclInt64, comm, stream());
    };
    link_->enqueue(group(), gather, wait);
  }

 private:
  void enqueue(const Place& place, const std::function<ncclResult_t(ncclComm_t)>& call) {
    link_->enqueue(group(), call, {.step = std::string(place.step), .deadline = link_->deadline()});
  }

  std::shared_ptr<NcclLink> link_;
};

template <typename Kind, typename Link>
CpGroups groups_of(const std::shared_ptr<Link>& link, const c10::intrusive_ptr<c10d::Store>& store,
                   const std::string& prefix, const Division& division = {}) {
  return make_groups(link->rank(), link->size(), division, [&](CpGroup group, const std::vector<int>& members) {
    constexpr std::array kNames{"cp", "inner", "outer"};
    auto made = std::make_shared<Kind>(link, GroupTag{.division = division, .group = group}, members, store,
                                       fmt::format("{}gpu_place/{}/{}/{}/", prefix, fmt::join(division.groups, ","),
                                                   division.inner, kNames.at(static_cast<std::size_t>(group))));
    if (division.empty() && group == CpGroup::cp) {
      made->set_divide([link, store, prefix](const Division& groups) {
        link->connect_divided(groups);
        return groups_of<Kind>(link, store, prefix, groups);
      });
    }
    return made;
  });
}

}  // namespace

CpGroups make_gpu_groups(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix, int rank, int size,
                         std::chrono::milliseconds connect_timeout, bool shares) {
  cuda::begin_random_delays(rank);
  if (shares) {
    return groups_of<PeerCommunicator>(GpuLink::connect_sharing(store, prefix, rank, size, connect_timeout), store,
                                       prefix);
  }
  return groups_of<NcclCommunicator>(NcclLink::connect(store, prefix, rank, size, connect_timeout), store, prefix);
}

}  // namespace cp_pool
