#include "cp_core/comm/nccl_link.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "cp_core/comm/pause.h"
#include "cp_core/cuda/early_start.h"

namespace cp_pool {
namespace {

using std::chrono::milliseconds;
using Clock = NcclLink::Clock;

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

bool is_capturing(c10::DeviceIndex device) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream(device), &status));
  return status != cudaStreamCaptureStatusNone;
}

std::string here_key(const std::string& prefix, int rank) {
  return fmt::format("{}nccl_here/{}", prefix, rank);
}

// Rank 0's NCCL id, by way of the store.
ncclUniqueId share_id(c10d::Store& store, const std::string& prefix, int rank, milliseconds timeout) {
  const std::string key = nccl_id_key(prefix);
  ncclUniqueId id{};
  if (rank == 0) {
    if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess) {
      throw std::runtime_error(
          fmt::format("no NCCL id: {} ({})", ncclGetErrorString(result), ncclGetLastError(nullptr)));
    }
    std::vector<std::uint8_t> bytes(sizeof id);
    std::memcpy(bytes.data(), &id, sizeof id);
    store.set(key, bytes);
    return id;
  }
  store.wait({key}, timeout);
  const std::vector<std::uint8_t> bytes = store.get(key);
  if (bytes.size() != sizeof id) throw std::runtime_error(fmt::format("{} has {} bytes", key, bytes.size()));
  std::memcpy(&id, bytes.data(), sizeof id);
  return id;
}

std::string ranks_not_here(c10d::Store& store, const std::string& prefix, int size) {
  std::vector<int> missing;
  for (int r = 0; r < size; ++r) {
    if (!store.check({here_key(prefix, r)})) missing.push_back(r);
  }
  if (missing.empty()) return "all ranks came, but NCCL did not connect them in time";
  return fmt::format("{} {} did not come in time", missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", "));
}

}  // namespace

std::shared_ptr<NcclLink> NcclLink::connect(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix,
                                            int rank, int size, milliseconds timeout, ncclComm_t started) {
  const std::string step = fmt::format("rank {}: connecting {} ranks over NCCL", rank, size);
  const Wait wait{.step = step,
                  .deadline = Clock::now() + timeout,
                  .explain = [&] { return fmt::format("{}: {}", step, ranks_not_here(*store, prefix, size)); },
                  .look = {}};
  auto link = std::make_shared<NcclLink>(rank, size, c10::cuda::current_device());
  try {
    store->set(here_key(prefix, rank), std::vector<std::uint8_t>{1});
    if (started != nullptr) {
      link->adopt(started, wait);
    } else {
      link->initialise(share_id(*store, prefix, rank, timeout), wait);
    }
    if (const GroupRanks ranks = group_ranks(rank, size); link->has_pairs()) {
      link->split(Group::inner, ranks.inner.front(), wait);
      link->split(Group::outer, ranks.outer.front(), wait);
    }
    auto [peers, why_not] = PeerLink::connect(store, prefix, rank, size, wait.deadline);
    link->peers_ = std::move(peers);
    link->why_no_peers_ = std::move(why_not);
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    if (Clock::now() >= wait.deadline) throw CommError(CommError::Kind::timeout, wait.explain());
    throw CommError(CommError::Kind::failed, fmt::format("{}: {}", step, error.what()));
  }
  return link;
}

NcclLink::~NcclLink() {
  abort("the groups are gone");
}

void NcclLink::initialise(const ncclUniqueId& id, const Wait& wait) {
  ncclConfig_t config = non_blocking();
  ncclResult_t state = ncclSuccess;
  {
    const std::lock_guard lock(mutex_);
    state = ncclCommInitRankConfig(comms_.data(), size_, id, rank_, &config);
  }
  wait_until_ready(Group::cp, state, wait);
}

void NcclLink::adopt(ncclComm_t started, const Wait& wait) {
  {
    const std::lock_guard lock(mutex_);
    comms_[index(Group::cp)] = started;
  }
  wait_until_ready(Group::cp, ncclInProgress, wait);
}

void NcclLink::split(Group group, int color, const Wait& wait) {
  ncclConfig_t config = non_blocking();
  ncclResult_t state = ncclSuccess;
  {
    const std::lock_guard lock(mutex_);
    state = ncclCommSplit(comms_[index(Group::cp)], color, rank_, &split_off_, &config);
  }
  // The new communicator is there when the old one is ready, and then has to become ready itself.
  wait_until_ready(Group::cp, state, wait);
  {
    const std::lock_guard lock(mutex_);
    comms_[index(group)] = std::exchange(split_off_, nullptr);
  }
  wait_until_ready(group, ncclInProgress, wait);
}

void NcclLink::enqueue(Group group, const std::function<ncclResult_t(ncclComm_t)>& call, const Wait& wait) {
  ncclResult_t state = ncclInProgress;
  {
    const std::lock_guard lock(mutex_);
    // Null once aborted: the first poll tells.
    if (comms_[index(group)] != nullptr) state = call(comms_[index(group)]);
  }
  wait_until_ready(group, state, wait);
}

void NcclLink::enqueue(Group group, const std::string& step, const std::function<ncclResult_t(ncclComm_t)>& call) {
  enqueue(
      group, call,
      {.step = step, .deadline = deadline_, .explain = [&] { return fmt::format("{}: timed out", step); }, .look = {}});
}

ncclResult_t NcclLink::poll(Group group, const std::string& step) {
  throw_if_failed(step);
  const std::lock_guard lock(mutex_);
  // Null: aborted since the line above. The next poll tells.
  if (comms_[index(group)] == nullptr) return ncclInProgress;
  ncclResult_t state = ncclInProgress;
  const ncclResult_t result = ncclCommGetAsyncError(comms_[index(group)], &state);
  return result == ncclSuccess ? state : result;
}

void NcclLink::wait_until_ready(Group group, ncclResult_t state, const Wait& wait) {
  // A call that returns ncclSuccess may still be under way: ncclCommSplit of NCCL 2.28 is. Only the communicator tells.
  if (state == ncclInProgress || state == ncclSuccess) {
    wait_until(
        [&] {
          state = poll(group, wait.step);
          return state != ncclInProgress;
        },
        wait);
  }
  if (state == ncclSuccess) return;
  std::string detail;
  {
    const std::lock_guard lock(mutex_);
    detail = ncclGetLastError(comms_[index(group)]);
  }
  fail(CommError::Kind::failed, wait.step,
       fmt::format("{}: NCCL: {} ({})", wait.step, ncclGetErrorString(state), detail));
}

void NcclLink::wait_until(const std::function<bool()>& done, const Wait& wait) {
  constexpr milliseconds kBetweenLooks{20};
  const Pause pause;
  auto next_look = Clock::now() + kBetweenLooks;
  while (!done()) {
    const auto now = Clock::now();
    if (wait.look && now >= std::min(next_look, wait.deadline)) {
      wait.look();
      next_look = Clock::now() + kBetweenLooks;
    }
    if (now >= wait.deadline) fail(CommError::Kind::timeout, wait.step, wait.explain());
    pause();
  }
}

void NcclLink::wait_for(const c10::cuda::CUDAEvent& event, const Wait& wait) {
  wait_until(
      [&] {
        // Before the errors: an abort ends what runs on the device, and so makes the event happen.
        const bool happened = event.query();
        check_for_errors(wait.step);
        return happened;
      },
      wait);
}

void NcclLink::check_for_errors(const std::string& step) {
  for (const Group group : {Group::cp, Group::inner, Group::outer}) {
    if (group != Group::cp && !has_pairs()) continue;
    const ncclResult_t state = poll(group, step);
    if (state == ncclSuccess || state == ncclInProgress) continue;
    fail(CommError::Kind::failed, step, fmt::format("{}: NCCL: {}", step, ncclGetErrorString(state)));
  }
}

void NcclLink::close_idle_memory(std::int64_t number, const Wait& wait) {
  if (!peers_) return;
  c10::cuda::CUDAEvent reached;  // a replay of a graph is no operation of its own
  reached.record(c10::cuda::getCurrentCUDAStream(device_));
  wait_for(reached, wait);
  for (const Pending& operation : pending_) wait_for(*operation.done, wait);
  pending_.clear();
  try {
    peers_->close_idle_memory(number, wait.deadline, [&] { check_for_errors(wait.step); });
  } catch (const CommError& error) {
    if (failed()) throw;
    fail(error.kind(), wait.step, fmt::format("{}: {}", wait.step, error.what()));
  }
}

void NcclLink::synchronize(const std::string& step) {
  throw_if_failed(step);
  c10::cuda::CUDAEvent reached;
  reached.record(c10::cuda::getCurrentCUDAStream(device_));
  const auto explain = [&] { return fmt::format("{}: timed out (seen by {})", oldest_pending(), step); };
  wait_for(reached, {.step = step, .deadline = deadline_, .explain = explain, .look = {}});
  forget_complete();
}

void NcclLink::add_pending(std::string step, std::shared_ptr<c10::cuda::CUDAEvent> done) {
  // A captured event happens in the graph alone, and a capture allows no queries.
  if (is_capturing(device_)) return;
  forget_complete();
  pending_.push_back({std::move(step), std::move(done)});
}

void NcclLink::forget_complete() {
  while (!pending_.empty() && pending_.front().done->query()) pending_.pop_front();
}

std::string NcclLink::oldest_pending() const {
  const auto oldest = std::ranges::find_if(pending_, [](const Pending& pending) { return !pending.done->query(); });
  return oldest == pending_.end() ? fmt::format("rank {}: work on the device", rank_) : oldest->step;
}

void NcclLink::throw_if_failed(const std::string& step) const {
  const std::lock_guard lock(mutex_);
  if (failed_) throw CommError(CommError::Kind::aborted, fmt::format("{}: aborted ({})", step, reason_));
}

bool NcclLink::failed() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

void NcclLink::fail(CommError::Kind kind, const std::string& step, const std::string& text) {
  throw_if_failed(step);
  {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    reason_ = text;
  }
  throw CommError(kind, text);
}

void NcclLink::abort(const std::string& reason) {
  std::array<ncclComm_t, 3> comms{};
  std::string why;
  {
    const std::lock_guard lock(mutex_);
    if (!failed_) reason_ = reason;
    failed_ = true;
    comms = std::exchange(comms_, {});
    why = reason_;
  }
  if (peers_) peers_->leave(why);
  // At the same time: each ends its own kernels at once, then frees memory, which waits for the kernels of all.
  std::vector<std::jthread> threads;
  for (ncclComm_t comm : comms) {
    if (comm == nullptr) continue;
    threads.emplace_back([comm, device = device_] {
      // NCCL goes back to the device it found, and would make a context on device 0.
      if (cudaSetDevice(device) == cudaSuccess) (void)ncclCommAbort(comm);
    });
  }
}

}  // namespace cp_pool
