// What the ranks of one group exchange by writing into each other's memory: operations of a PeerLink, made of tensors.
// Ranks are those of the group. Everything is enqueued on the group's stream, which must be the current one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

#include "cp_core/comm/communicator.h"
#include "cp_core/comm/nccl_link.h"
#include "cp_core/comm/peer_link.h"

namespace cp_pool {

class PeerExchange {
 public:
  using Message = Communicator::Message;
  using Put = Communicator::Put;

  // link: has peers. members: ranks of the link, by rank of the group.
  PeerExchange(std::shared_ptr<NcclLink> link, NcclLink::Group group, std::vector<int> members,
               c10::cuda::CUDAStream stream)
      : link_(std::move(link)), group_(group), members_(std::move(members)), stream_(stream) {}

  struct Place {
    std::int64_t number = 0;  // of the operation in the group
    std::string_view name;    // to peers
    std::string_view step;    // opens the text of an error
  };
  // to, from: the ranks that messages go to and come from, even if there are none for some. All throw CommError, and
  // leave the link failed.
  void exchange(const Place& place, std::span<const Message> sends, std::span<const int> to,
                std::span<const Message> receives, std::span<const int> from);
  // others: all ranks but this one.
  void put(const Place& place, std::span<const at::Tensor> windows, std::span<const Put> puts,
           std::span<const int> others);

 private:
  [[nodiscard]] int member(int rank) const { return members_.at(static_cast<std::size_t>(rank)); }
  void enqueue(const Place& place, std::vector<PeerLink::Incoming> incoming, std::vector<PeerLink::Outgoing> outgoing);

  std::shared_ptr<NcclLink> link_;
  NcclLink::Group group_;
  std::vector<int> members_;
  c10::cuda::CUDAStream stream_;
};

}  // namespace cp_pool
