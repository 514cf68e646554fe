#include "cp_core/comm/nccl/nccl_link.h"

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

namespace cp_pool {
namespace {

using std::chrono::milliseconds;
using Clock = NcclLink::Clock;

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

// Returns rank 0's NCCL id on every rank, by way of the store.
ncclUniqueId share_id(c10d::Store& store, const std::string& prefix, int rank, milliseconds timeout) {
  const std::string key = prefix + "nccl_id";
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

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  const ncclResult_t result = comm == nullptr ? ncclSuccess : ncclCommGetAsyncError(comm, &state);
  return result == ncclSuccess ? state : result;
}

}  // namespace

std::shared_ptr<NcclLink> NcclLink::connect(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix,
                                            int rank, int size, milliseconds timeout) {
  const std::string step = fmt::format("rank {}: connecting {} ranks over NCCL", rank, size);
  const Wait wait{.step = step, .deadline = Clock::now() + timeout, .explain = [&] {
                    return fmt::format("{}: {}", step, absent_ranks(*store, prefix, size));
                  }};
  auto link = std::make_shared<NcclLink>(rank, size, c10::cuda::current_device());
  try {
    link->announce(*store, prefix);
    link->initialise(share_id(*store, prefix, rank, timeout), wait);
    link->split_all({}, wait);
    link->connect_peers(store, prefix, wait.deadline);
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
    const std::lock_guard lock(comms_mutex_);
    state = ncclCommInitRankConfig(&comms_[GroupTag{}], size(), id, rank(), &config);
  }
  wait_until_ready({}, state, wait);
}

void NcclLink::connect_divided(const Division& division) {
  split_all(division, {.step = fmt::format("rank {}: connecting the groups {} over NCCL", rank(), groups_of(division)),
                       .deadline = deadline()});
}

void NcclLink::split_all(const Division& division, const Wait& wait) {
  const GroupRanks ranks = group_ranks(rank(), size(), division);
  const auto split_off = [&](CpGroup group, const std::vector<int>& members) {
    if (!members.empty()) split({.division = division, .group = group}, members.front(), wait);
  };
  if (!division.empty()) split_off(CpGroup::cp, ranks.cp);
  split_off(CpGroup::inner, ranks.inner);
  split_off(CpGroup::outer, ranks.outer);
}

void NcclLink::split(const GroupTag& group, int color, const Wait& wait) {
  ncclConfig_t config = non_blocking();
  ncclResult_t state = ncclSuccess;
  {
    const std::lock_guard lock(comms_mutex_);
    // The communicator is null after an abort, which the first poll reports.
    state = comm_of({}) == nullptr ? ncclInProgress : ncclCommSplit(comm_of({}), color, rank(), &split_off_, &config);
  }
  // The new communicator exists when the old one is ready, and then has to become ready itself.
  wait_until_ready({}, state, wait);
  {
    const std::lock_guard lock(comms_mutex_);
    comms_[group] = std::exchange(split_off_, nullptr);
  }
  wait_until_ready(group, ncclInProgress, wait);
}

void NcclLink::enqueue(const GroupTag& group, const std::function<ncclResult_t(ncclComm_t)>& call, const Wait& wait) {
  ncclResult_t state = ncclInProgress;
  {
    const std::lock_guard lock(comms_mutex_);
    // The communicator is null after an abort, which the first poll reports.
    if (ncclComm_t comm = comm_of(group); comm != nullptr) state = call(comm);
  }
  wait_until_ready(group, state, wait);
}

ncclComm_t NcclLink::comm_of(const GroupTag& group) const {
  const auto found = comms_.find(group);
  return found == comms_.end() ? nullptr : found->second;
}

ncclResult_t NcclLink::poll(const GroupTag& group, const std::string& step) {
  throw_if_failed(step);
  const std::lock_guard lock(comms_mutex_);
  // The communicator is null if it was aborted since the check above. The next poll reports that.
  return state_of(comm_of(group));
}

void NcclLink::wait_until_ready(const GroupTag& group, ncclResult_t state, const Wait& wait) {
  // A call that returns ncclSuccess may still be under way, as ncclCommSplit of NCCL 2.28 is. Only the communicator's
  // state says when it is complete.
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
    const std::lock_guard lock(comms_mutex_);
    detail = ncclGetLastError(comm_of(group));
  }
  fail(CommError::Kind::failed, wait.step,
       fmt::format("{}: NCCL: {} ({})", wait.step, ncclGetErrorString(state), detail));
}

void NcclLink::check_connections(const std::string& step) {
  throw_if_failed(step);
  const std::lock_guard lock(comms_mutex_);
  for (const auto& [group, comm] : comms_) {
    const ncclResult_t state = state_of(comm);
    if (state == ncclSuccess || state == ncclInProgress) continue;
    fail(CommError::Kind::failed, step, fmt::format("{}: NCCL: {}", step, ncclGetErrorString(state)));
  }
}

void NcclLink::abort_connections() {
  std::map<GroupTag, ncclComm_t> comms;
  {
    const std::lock_guard lock(comms_mutex_);
    comms = std::exchange(comms_, {});
  }
  // Each communicator is aborted on a thread of its own: an abort ends the kernels of its communicator at once, then
  // frees memory, which waits for the kernels of all communicators.
  std::vector<std::jthread> threads;
  for (const auto& [group, comm] : comms) {
    if (comm == nullptr) continue;
    threads.emplace_back([comm = comm, device = device()] {
      // NCCL restores the device that was current, which would create a context on device 0.
      if (cudaSetDevice(device) == cudaSuccess) (void)ncclCommAbort(comm);
    });
  }
}

}  // namespace cp_pool
