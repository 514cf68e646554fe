#include "cp_core/comm/nccl/gpu_groups.h"

#include <memory>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "cp_core/comm/nccl/nccl_communicator.h"
#include "cp_core/comm/peer/peer_communicator.h"
#include "cp_core/cuda/delay.h"

namespace cp_pool {
namespace {

template <typename Kind, typename Link>
CpGroups groups_of(const std::shared_ptr<Link>& link, const c10::intrusive_ptr<c10d::Store>& store,
                   const std::string& prefix) {
  const auto make = [&](GpuLink::Group group, const char* name, std::vector<int> members) -> std::shared_ptr<Kind> {
    if (members.empty()) return nullptr;
    return std::make_shared<Kind>(link, group, std::move(members), store, prefix + "gpu_place/" + name + "/");
  };
  const GroupRanks ranks = group_ranks(link->rank(), link->size());
  CpGroups groups;
  groups.cp = make(GpuLink::Group::cp, "cp", ranks.cp);
  groups.inner = make(GpuLink::Group::inner, "inner", ranks.inner);
  groups.outer = make(GpuLink::Group::outer, "outer", ranks.outer);
  return groups;
}

}  // namespace

CpGroups make_gpu_groups(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix, int rank, int size,
                         std::chrono::milliseconds connect_timeout, const GpuGroupOptions& options) {
  cuda::begin_random_delays(rank);
  if (options.shares) {
    return groups_of<PeerCommunicator>(GpuLink::connect_sharing(store, prefix, rank, size, connect_timeout), store,
                                       prefix);
  }
  const auto started = static_cast<ncclComm_t>(options.started);
  return groups_of<NcclCommunicator>(NcclLink::connect(store, prefix, rank, size, connect_timeout, started), store,
                                     prefix);
}

}  // namespace cp_pool
