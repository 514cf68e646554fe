// The checked barrier of a group of GPU ranks. Ranks gather each other's tags and operation counts over the group. NCCL
// cannot tell which rank is missing, or that a rank is in another operation, so each rank also publishes its place in
// the store.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/intrusive_ptr.h>

#include "cp_core/comm/peer/gpu_link.h"

namespace cp_pool {

class GpuBarrier {
 public:
  // members: the link rank of each rank of the group. stream: the group's. The store is used in pass() only, with one
  // key for each member, which starts with `prefix`.
  GpuBarrier(std::shared_ptr<GpuLink> link, GroupTag group, std::vector<int> members, c10::cuda::CUDAStream stream,
             c10::intrusive_ptr<c10d::Store> store, std::string prefix);
  GpuBarrier(const GpuBarrier&) = delete;
  GpuBarrier& operator=(const GpuBarrier&) = delete;
  ~GpuBarrier();

  // Enqueues the gathering of every rank's `mine` into `all`, in rank order, on the group's stream, which is the
  // current one. number: the barrier's, counted from 1. Throws CommError.
  using Gather =
      std::function<void(at::Tensor& all, const at::Tensor& mine, std::int64_t number, const GpuLink::Wait& wait)>;

  // Implements Communicator::checked_barrier. operations: how many this rank has begun. Throws CommError.
  void pass(std::int64_t tag, std::int64_t operations, std::chrono::milliseconds limit, const Gather& gather);

 private:
  struct Place {
    std::int64_t barrier = 0;  // how many barriers the rank has reached
    std::int64_t tag = 0;
    std::int64_t operations = 0;
  };
  using Places = std::vector<std::optional<Place>>;  // by rank of the group

  Places gather(const Place& own, const Gather& gather, const GpuLink::Wait& wait);
  void publish(const Place& own);
  [[nodiscard]] Places published() const;
  // Says how the places of ranks at this barrier differ; nullopt if they do not.
  [[nodiscard]] std::optional<std::string> disagreement(const Places& places) const;
  // Throws if the places differ.
  void require_same_step(const Places& places, const std::string& step);
  // Throws if a rank has not reached this barrier, so that the gathered values are not all from this barrier.
  void require_all_ranks(const std::string& step);
  [[nodiscard]] std::vector<int> missing() const;
  [[nodiscard]] std::string missing_ranks_text() const;
  [[nodiscard]] std::string key_of(int member) const;
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(members_.size()); }

  std::shared_ptr<GpuLink> link_;
  GroupTag group_;
  std::vector<int> members_;
  c10::cuda::CUDAStream stream_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::string prefix_;
  at::Tensor gathered_;  // [size, 2] on the host: tags and operations, as the last barrier gathered them
  std::int64_t barriers_ = 0;
};

}  // namespace cp_pool
