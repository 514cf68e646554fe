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

  // link: must have peers. members: the rank in the link of each rank of the group. rank: this one, in the group.
  PeerExchange(std::shared_ptr<GpuLink> link, GpuLink::Group group, std::vector<int> members, int rank,
               c10::cuda::CUDAStream stream);

  struct Place {
    std::int64_t number = 0;  // of the operation in the group; below zero: of a barrier
    std::string_view name;    // what peers are told
    std::string_view step;    // opens the text of an error
    // How long this may take, and what a timeout says; null: until the deadline of the link.
    const GpuLink::Wait* wait = nullptr;
  };
  // As the Communicator's operations of these names. All throw CommError, and leave the link failed. own: blocks that
  // stay on this rank; put() copies them, too, if devices are idle meanwhile.
  void exchange(const Place& place, std::span<const at::Tensor> sends, int to, std::span<const at::Tensor> receives,
                int from);
  void exchange_all(const Place& place, std::span<const Message> sends, std::span<const Message> receives);
  void put(const Place& place, std::span<const at::Tensor> windows, std::span<const Put> puts,
           PeerWindows::Meanwhile meanwhile, std::span<const BlockCopy> own);

 private:
  [[nodiscard]] int member(int rank) const { return members_.at(static_cast<std::size_t>(rank)); }
  [[nodiscard]] PeerLink::Incoming from_peer(int peer, std::span<const at::Tensor> windows) const;
  [[nodiscard]] PeerLink::Outgoing to_peer(int peer, std::span<const at::Tensor> tensors) const;
  void enqueue(const Place& place, PeerLink::Operation operation);

  std::shared_ptr<GpuLink> link_;
  GpuLink::Group group_;
  std::vector<int> members_;
  std::vector<int> others_;  // ranks of the group, the next one first: not all write to the same one first
  c10::cuda::CUDAStream stream_;
};

}  // namespace cp_pool
