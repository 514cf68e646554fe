// A communicator of GPU ranks whose operations are peer copies (peer_link.h). Ranks that share a GPU use it as it is;
// NcclCommunicator derives from it. Sums gather the values of all ranks and add them in rank order, so that every rank
// gets the same bits.
//
// Operations are enqueued on a stream of the communicator's own that waits for the caller's current stream; Work::wait
// makes the current stream wait for them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/intrusive_ptr.h>

#include "cp_core/comm/communicator.h"
#include "cp_core/comm/peer/gpu_barrier.h"
#include "cp_core/comm/peer/gpu_link.h"
#include "cp_core/comm/peer/peer_link.h"
#include "cp_core/comm/windows.h"
#include "cp_core/cuda/delay.h"

namespace cp_pool {

class PeerCommunicator : public Communicator, public PeerWindows {
 public:
  // members: the link rank of each rank of this group. barrier_prefix: the beginning of the barrier's keys in the
  // store.
  PeerCommunicator(std::shared_ptr<GpuLink> link, GroupTag group, std::vector<int> members,
                   const c10::intrusive_ptr<c10d::Store>& store, const std::string& barrier_prefix);

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(members_.size()); }
  [[nodiscard]] std::string description() const override;
  void set_deadline(Clock::time_point deadline) override { link_->set_deadline(deadline); }
  // Makes this communicator, which is of all ranks, one whose ranks can be divided. divide: is called once for each
  // division, on all ranks.
  void set_divide(std::function<CpGroups(const Division&)> divide) { divide_ = std::move(divide); }
  void abort() override { link_->abort("abort was called"); }
  void synchronize(std::string_view what) override { link_->synchronize(describe("synchronize", what)); }

  WorkPtr exchange_many(std::span<const at::Tensor> sends, int to, std::span<const at::Tensor> receives, int from,
                        std::string_view what) override;
  WorkPtr exchange_all(std::span<const Message> sends, std::span<const Message> receives,
                       std::string_view what) override;
  PeerWindows* windows() override { return has_peers() ? this : nullptr; }
  WorkPtr put_all(std::span<const at::Tensor> windows, std::span<const at::Tensor> sources, std::span<const Put> puts,
                  std::string_view what) override;
  WorkPtr all_gather(at::Tensor& out, const at::Tensor& in, std::string_view what) override;
  WorkPtr reduce_scatter(at::Tensor& out, const at::Tensor& in, std::string_view what) override;
  WorkPtr all_reduce(at::Tensor& inout, ReduceOp op, std::string_view what) override;
  void checked_barrier(std::int64_t tag, std::chrono::milliseconds limit) override;

 protected:
  CpGroups divide(const Division& division) override { return divide_ ? divide_(division) : CpGroups{}; }

  struct Place {
    std::int64_t number = 0;  // the operation's number in the group; below zero for a barrier
    std::string_view name;    // the name by which error texts of peers call the operation
    std::string_view step;    // the first words of an error text
    // The deadline and the text of a timeout; null for the deadline of the link.
    const GpuLink::Wait* wait = nullptr;
  };
  // These functions enqueue an operation on the communicator's stream, which is the current one. Tensors are not empty,
  // and the group has more than one rank. NcclCommunicator overrides them.
  virtual void send_and_receive(const Place& place, std::span<const Message> sends, std::span<const Message> receives);
  // Part r of out comes from rank r. This rank's own part has been written already.
  virtual void gather_parts(const Place& place, const at::Tensor& out, const at::Tensor& in);
  virtual void sum_parts(const Place& place, at::Tensor& out, const at::Tensor& in);
  virtual void reduce(const Place& place, at::Tensor& inout, ReduceOp op);
  virtual void gather_places(at::Tensor& all, const at::Tensor& mine, std::int64_t barrier, const GpuLink::Wait& wait);

  [[nodiscard]] bool has_peers() const { return link_->peers() != nullptr && size() > 1; }
  [[nodiscard]] const GroupTag& group() const { return group_; }
  [[nodiscard]] c10::cuda::CUDAStream stream() const { return stream_; }

 private:
  [[nodiscard]] int member(int rank) const { return members_.at(static_cast<std::size_t>(rank)); }
  [[nodiscard]] std::string describe(const char* operation, std::string_view what) const;
  [[nodiscard]] Place place_of(std::string_view what, std::string_view step) const {
    return {.number = operations_, .name = what, .step = step};
  }
  // Calls body(to, from) for each peer. It begins with the next rank, so that not all ranks write to the same one
  // first.
  template <typename Body>
  void for_each_peer(Body&& body) const {
    for (int distance = 1; distance < size(); ++distance) {
      body((rank_ + distance) % size(), (rank_ + size() - distance) % size());
    }
  }
  // Part `index` of the tensor's elements, which are cut into size() equal parts.
  [[nodiscard]] at::Tensor flat_part(const at::Tensor& tensor, int index) const;
  // part_for(r) goes to rank r, part r of `out` comes from rank r. This rank's own part is left as it is.
  template <typename PartFor>
  void swap_parts(const Place& place, const at::Tensor& out, const PartFor& part_for);
  // Gathers `mine` of every rank: [size(), elements].
  [[nodiscard]] at::Tensor gathered(const Place& place, const at::Tensor& mine);
  void copy(const at::Tensor& target, const at::Tensor& source) const;

  [[nodiscard]] PeerLink::Incoming from_peer(int peer, std::span<const at::Tensor> windows) const;
  [[nodiscard]] PeerLink::Outgoing to_peer(int peer, std::span<const at::Tensor> tensors) const;
  // Enqueues an operation with peers. Throws CommError after marking the link as failed.
  void enqueue_with_peers(const Place& place, PeerLink::Operation& operation);

  // Makes the communicator's stream wait for the work that the caller's stream has so far, then runs `body` with the
  // communicator's stream as the current one.
  template <typename Body>
  WorkPtr start(const std::string& step, std::vector<at::Tensor> tensors, Body&& body);

  std::shared_ptr<GpuLink> link_;
  GroupTag group_;
  std::vector<int> members_;
  c10::cuda::CUDAStream stream_;
  cuda::StreamDelays delays_;
  GpuBarrier barrier_;
  int rank_ = 0;
  std::int64_t operations_ = 0;
  std::function<CpGroups(const Division&)> divide_;
};

}  // namespace cp_pool
