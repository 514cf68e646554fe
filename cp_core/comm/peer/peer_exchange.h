// Exchanges tensors among the ranks of one group by operations of a PeerLink. Ranks are numbered as in the group.
// Everything is enqueued on the group's stream, which must be the current one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

#include "cp_core/comm/communicator.h"
#include "cp_core/comm/peer/gpu_link.h"
#include "cp_core/comm/peer/peer_link.h"
#include "cp_core/comm/peer/windows.h"

namespace cp_pool {

class PeerExchange {
 public:
  using Message = Communicator::Message;
  using Put = PeerWindows::Put;

  // link: must have peers. members: the link rank of each rank of the group. rank: this rank's in the group.
  PeerExchange(std::shared_ptr<GpuLink> link, const GroupTag& group, std::vector<int> members, int rank,
               c10::cuda::CUDAStream stream);

  struct Place {
    std::int64_t number = 0;  // the operation's number in the group; below zero for a barrier
    std::string_view name;    // the name by which error texts of peers call the operation
    std::string_view step;    // the first words of an error text
    // The deadline and the text of a timeout; null for the deadline of the link.
    const GpuLink::Wait* wait = nullptr;
  };
  // As the operations of these names in Communicator and PeerWindows. Each throws CommError after marking the link as
  // failed. put() leaves out what stays on this rank.
  void exchange(const Place& place, std::span<const at::Tensor> sends, int to, std::span<const at::Tensor> receives,
                int from);
  void exchange_all(const Place& place, std::span<const Message> sends, std::span<const Message> receives);
  void put(const Place& place, std::span<const at::Tensor> windows, std::span<const Put> puts);

 private:
  [[nodiscard]] int member(int rank) const { return members_.at(static_cast<std::size_t>(rank)); }
  [[nodiscard]] PeerLink::Incoming from_peer(int peer, std::span<const at::Tensor> windows) const;
  [[nodiscard]] PeerLink::Outgoing to_peer(int peer, std::span<const at::Tensor> tensors) const;
  void enqueue(const Place& place, PeerLink::Operation& operation);

  std::shared_ptr<GpuLink> link_;
  int group_;  // its number on the board
  std::vector<int> members_;
  std::vector<int> others_;  // the other ranks of the group, beginning with the next one
  c10::cuda::CUDAStream stream_;
};

}  // namespace cp_pool
