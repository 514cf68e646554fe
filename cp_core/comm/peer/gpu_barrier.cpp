#include "cp_core/comm/peer/gpu_barrier.h"

#include <array>
#include <cstring>
#include <exception>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace cp_pool {

GpuBarrier::GpuBarrier(std::shared_ptr<GpuLink> link, GroupTag group, std::vector<int> members,
                       c10::cuda::CUDAStream stream, c10::intrusive_ptr<c10d::Store> store, std::string prefix)
    : link_(std::move(link)),
      group_(std::move(group)),
      members_(std::move(members)),
      stream_(stream),
      store_(std::move(store)),
      prefix_(std::move(prefix)),
      gathered_(at::empty({size(), 2}, at::TensorOptions().dtype(at::kLong).pinned_memory(true))) {}

GpuBarrier::~GpuBarrier() {
  // An abandoned barrier may still write to this memory, so the memory is leaked.
  if (link_->failed()) (void)gathered_.unsafeReleaseTensorImpl();
}

void GpuBarrier::pass(std::int64_t tag, std::int64_t operations, std::chrono::milliseconds limit,
                      const Gather& gather) {
  const std::string step = fmt::format("rank {}: barrier with tag {}", link_->rank(), tag);
  const GpuLink::Wait wait{.step = step,
                           .deadline = GpuLink::Clock::now() + limit,
                           .explain = [&] { return fmt::format("{}: {}: timed out", step, missing_ranks_text()); },
                           .look = [&] { require_same_step(published(), step); }};
  link_->throw_if_failed(step);
  const Place own{.barrier = ++barriers_, .tag = tag, .operations = operations};
  try {
    publish(own);
    const Places gathered = this->gather(own, gather, wait);
    if (disagreement(gathered)) require_all_ranks(step);
    require_same_step(gathered, step);
    if (group_.has_all_ranks()) link_->close_idle_memory(barriers_, wait);
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    link_->fail(CommError::Kind::failed, step, fmt::format("{}: {}", step, error.what()));
  }
}

// Once this succeeds, every earlier operation of the group is complete on every rank.
GpuBarrier::Places GpuBarrier::gather(const Place& own, const Gather& gather, const GpuLink::Wait& wait) {
  c10::cuda::CUDAEvent ready;
  ready.record(c10::cuda::getCurrentCUDAStream(link_->device()));
  const c10::cuda::CUDAStreamGuard guard(stream_);
  ready.block(stream_);

  const auto options = at::TensorOptions().dtype(at::kLong).device(at::kCUDA, link_->device());
  const at::Tensor mine = at::empty({2}, options);
  mine.select(0, 0).fill_(own.tag);
  mine.select(0, 1).fill_(own.operations);
  at::Tensor all = at::empty({size(), 2}, options);
  gather(all, mine, own.barrier, wait);
  C10_CUDA_CHECK(
      cudaMemcpyAsync(gathered_.data_ptr(), all.const_data_ptr(), gathered_.nbytes(), cudaMemcpyDeviceToHost, stream_));
  c10::cuda::CUDAEvent read;
  read.record(stream_);
  link_->wait_for(read, wait);

  Places places;
  const auto values = gathered_.accessor<std::int64_t, 2>();
  for (std::int64_t r = 0; r < size(); ++r) {
    places.emplace_back(Place{.barrier = own.barrier, .tag = values[r][0], .operations = values[r][1]});
  }
  return places;
}

std::string GpuBarrier::key_of(int member) const {
  return fmt::format("{}{}", prefix_, member);
}

void GpuBarrier::publish(const Place& own) {
  std::vector<std::uint8_t> bytes(sizeof own);
  std::memcpy(bytes.data(), &own, sizeof own);
  store_->set(key_of(link_->rank()), bytes);
}

GpuBarrier::Places GpuBarrier::published() const {
  Places places;
  for (const int member : members_) {
    auto& place = places.emplace_back();
    const std::string key = key_of(member);
    if (!store_->check({key})) continue;
    const std::vector<std::uint8_t> bytes = store_->get(key);
    TORCH_CHECK(bytes.size() == sizeof(Place), key, " has ", bytes.size(), " bytes");
    std::memcpy(&place.emplace(), bytes.data(), sizeof(Place));
  }
  return places;
}

std::optional<std::string> GpuBarrier::disagreement(const Places& places) const {
  const auto& first = places.front();
  if (!first || first->barrier != barriers_) return std::nullopt;
  for (std::size_t r = 1; r < places.size(); ++r) {
    const auto& place = places[r];
    if (!place || place->barrier != barriers_) continue;
    if (place->tag == first->tag && place->operations == first->operations) continue;
    return fmt::format("rank {} is at tag {} after {} operations, but rank {} at tag {} after {}", members_[r],
                       place->tag, place->operations, members_[0], first->tag, first->operations);
  }
  return std::nullopt;
}

void GpuBarrier::require_same_step(const Places& places, const std::string& step) {
  const auto how = disagreement(places);
  if (how) link_->fail(CommError::Kind::failed, step, fmt::format("{}: {}", step, *how));
}

// NCCL pairs operations only by their order, so it would take another all-gather of a rank for the rank's part in this
// barrier. The store therefore says whether each rank has reached the barrier.
void GpuBarrier::require_all_ranks(const std::string& step) {
  const std::vector<int> elsewhere = missing();
  if (elsewhere.empty()) return;
  const bool one = elsewhere.size() == 1;
  link_->fail(
      CommError::Kind::failed, step,
      fmt::format("{}: rank{} {} {} not reached the barrier: NCCL paired it with another operation of the group", step,
                  one ? "" : "s", fmt::join(elsewhere, ", "), one ? "has" : "have"));
}

std::vector<int> GpuBarrier::missing() const {
  const Places places = published();
  std::vector<int> ranks;
  for (std::size_t r = 0; r < places.size(); ++r) {
    if (!places[r] || places[r]->barrier < barriers_) ranks.push_back(members_[r]);
  }
  return ranks;
}

std::string GpuBarrier::missing_ranks_text() const {
  const std::vector<int> ranks = missing();
  if (ranks.empty()) return "all ranks reached the barrier, but their exchange did not complete";
  return fmt::format("receive from rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace cp_pool
