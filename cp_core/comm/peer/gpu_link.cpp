#include "cp_core/comm/peer/gpu_link.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace cp_pool {
namespace {

using std::chrono::milliseconds;
using Clock = GpuLink::Clock;

bool is_capturing(c10::DeviceIndex device) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream(device), &status));
  return status != cudaStreamCaptureStatusNone;
}

std::string arrival_key(const std::string& prefix, int rank) {
  return fmt::format("{}gpu_here/{}", prefix, rank);
}

}  // namespace

std::shared_ptr<GpuLink> GpuLink::connect_sharing(const c10::intrusive_ptr<c10d::Store>& store,
                                                  const std::string& prefix, int rank, int size, milliseconds timeout) {
  const std::string step = fmt::format("rank {}: connecting {} ranks that share GPUs", rank, size);
  const auto deadline = Clock::now() + timeout;
  auto link = std::make_shared<GpuLink>(rank, size, c10::cuda::current_device(), /*shares=*/true);
  try {
    link->announce(*store, prefix);
    link->connect_peers(store, prefix, deadline);
  } catch (const std::exception& error) {
    if (Clock::now() >= deadline) {
      throw CommError(CommError::Kind::timeout, fmt::format("{}: {}", step, absent_ranks(*store, prefix, size)));
    }
    throw CommError(CommError::Kind::failed, fmt::format("{}: {}", step, error.what()));
  }
  if (size > 1 && link->peers() == nullptr) {
    throw CommError(CommError::Kind::failed,
                    fmt::format("{}: ranks that share a GPU need peer copies, which are not available: {}", step,
                                link->peer_copy_obstacle()));
  }
  return link;
}

GpuLink::~GpuLink() {
  const std::string why = mark_failed("the groups are gone");
  if (peers_) peers_->leave(why);
}

void GpuLink::announce(c10d::Store& store, const std::string& prefix) const {
  store.set(arrival_key(prefix, rank_), std::vector<std::uint8_t>{1});
}

std::string GpuLink::absent_ranks(c10d::Store& store, const std::string& prefix, int size) {
  std::vector<int> missing;
  for (int r = 0; r < size; ++r) {
    if (!store.check({arrival_key(prefix, r)})) missing.push_back(r);
  }
  if (missing.empty()) return "all ranks came, but were not connected in time";
  return fmt::format("{} {} did not connect in time", missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", "));
}

void GpuLink::connect_peers(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix,
                            Clock::time_point deadline) {
  auto [peers, why_not] = PeerLink::connect(store, prefix, rank_, size_, shares_, deadline);
  peers_ = std::move(peers);
  why_no_peers_ = std::move(why_not);
}

void GpuLink::wait_until(const std::function<bool()>& done, const Wait& wait) {
  const Pause pause;
  auto next_look = Clock::now() + kBetweenLooks;
  while (!done()) {
    const auto now = Clock::now();
    if (wait.look && now >= std::min(next_look, wait.deadline)) {
      wait.look();
      next_look = Clock::now() + kBetweenLooks;
    }
    if (now >= wait.deadline) {
      fail(CommError::Kind::timeout, wait.step, wait.explain ? wait.explain() : wait.step + ": timed out");
    }
    pause();
  }
}

void GpuLink::wait_for(const c10::cuda::CUDAEvent& event, const Wait& wait) {
  wait_until(
      [&] {
        // The event is queried before errors are checked, since an abort ends the work on the device and so completes
        // the event.
        const bool happened = event.query();
        check_connections(wait.step);
        return happened;
      },
      wait);
}

void GpuLink::close_idle_memory(std::int64_t number, const Wait& wait) {
  if (!peers_) return;
  c10::cuda::CUDAEvent reached;  // covers replays of graphs, which are not in pending_
  reached.record(c10::cuda::getCurrentCUDAStream(device_));
  wait_for(reached, wait);
  for (const Pending& operation : pending_) wait_for(*operation.done, wait);
  pending_.clear();
  held_.reset();
  try {
    peers_->close_idle_memory(number, wait.deadline, [&] { check_connections(wait.step); });
  } catch (const CommError& error) {
    if (failed()) throw;
    fail(error.kind(), wait.step, fmt::format("{}: {}", wait.step, error.what()));
  }
}

void GpuLink::synchronize(const std::string& step) {
  throw_if_failed(step);
  c10::cuda::CUDAEvent reached;
  reached.record(c10::cuda::getCurrentCUDAStream(device_));
  const auto explain = [&] { return fmt::format("{}: timed out (noticed during {})", oldest_pending(), step); };
  wait_for(reached, {.step = step, .deadline = deadline_, .explain = explain});
  forget_complete();
  if (pending_.empty()) held_.reset();
}

// Memory is not held during a capture, which uses the allocator by itself and runs nothing that waits.
void GpuLink::hold_memory() {
  if (shares_ && size_ > 1 && !held_ && !is_capturing(device_)) held_.emplace(device_);
}

void GpuLink::add_pending(std::string step, std::shared_ptr<c10::cuda::CUDAEvent> done) {
  // A captured event happens only in the graph, and must not be queried during the capture.
  if (is_capturing(device_)) return;
  forget_complete();
  pending_.push_back({std::move(step), std::move(done)});
}

void GpuLink::forget_complete() {
  while (!pending_.empty() && pending_.front().done->query()) pending_.pop_front();
}

std::string GpuLink::oldest_pending() const {
  const auto oldest = std::ranges::find_if(pending_, [](const Pending& pending) { return !pending.done->query(); });
  return oldest == pending_.end() ? fmt::format("rank {}: work on the device", rank_) : oldest->step;
}

void GpuLink::throw_if_failed(const std::string& step) const {
  const std::lock_guard lock(mutex_);
  if (failed_) throw CommError(CommError::Kind::aborted, fmt::format("{}: aborted ({})", step, reason_));
}

bool GpuLink::failed() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

// Returns the first reason.
std::string GpuLink::mark_failed(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!failed_) reason_ = reason;
  failed_ = true;
  return reason_;
}

void GpuLink::fail(CommError::Kind kind, const std::string& step, const std::string& text) {
  throw_if_failed(step);
  (void)mark_failed(text);
  throw CommError(kind, text);
}

void GpuLink::abort(const std::string& reason) {
  const std::string why = mark_failed(reason);
  if (peers_) peers_->leave(why);
  abort_connections();
}

// The allocator frees nothing while a capture allocates from a private pool. This pool serves no stream, so allocations
// are made as usual.
HeldMemory::HeldMemory(c10::DeviceIndex device) : device_(device), pool_(at::cuda::graph_pool_handle()) {
  c10::cuda::CUDACachingAllocator::beginAllocateToPool(device_, pool_, [](cudaStream_t /*stream*/) { return false; });
}

HeldMemory::~HeldMemory() {
  try {
    c10::cuda::CUDACachingAllocator::endAllocateToPool(device_, pool_);
    c10::cuda::CUDACachingAllocator::releasePool(device_, pool_);
  } catch (const std::exception& error) {
    TORCH_WARN("the pool that holds memory back was not released: ", error.what());
  }
}

}  // namespace cp_pool
