#include "cp_core/comm/nccl/gpu_groups.h"

#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "cp_core/comm/nccl/nccl_communicator.h"
#include "cp_core/comm/peer/peer_communicator.h"
#include "cp_core/cuda/delay.h"

namespace cp_pool {
namespace {

template <typename Kind, typename Link>
CpGroups groups_of(const std::shared_ptr<Link>& link, const c10::intrusive_ptr<c10d::Store>& store,
                   const std::string& prefix, const Division& division = {}) {
  const auto make = [&](CpGroup group, const char* name, std::vector<int> members) -> std::shared_ptr<Kind> {
    if (members.empty()) return nullptr;
    return std::make_shared<Kind>(
        link, GroupTag{.division = division, .group = group}, std::move(members), store,
        fmt::format("{}gpu_place/{}/{}/{}/", prefix, fmt::join(division.groups, ","), division.inner, name));
  };
  const GroupRanks ranks = group_ranks(link->rank(), link->size(), division);
  const std::shared_ptr<Kind> cp = make(CpGroup::cp, "cp", ranks.cp);
  if (division.empty()) {
    cp->set_divide([link, store, prefix](const Division& groups) {
      link->connect_divided(groups);
      return groups_of<Kind>(link, store, prefix, groups);
    });
  }
  return {.cp = cp,
          .inner = make(CpGroup::inner, "inner", ranks.inner),
          .outer = make(CpGroup::outer, "outer", ranks.outer)};
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
