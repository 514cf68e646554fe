#include "cp_core/comm/gloo/gloo_mesh.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <exception>
#include <net/if.h>
#include <sched.h>
#include <stdexcept>
#include <string_view>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "cp_core/comm/communicator.h"

namespace cp_pool {
namespace {

using WorkRef = c10::intrusive_ptr<c10d::Work>;
using GroupRef = c10::intrusive_ptr<c10d::ProcessGroupGloo>;
using std::chrono::milliseconds;

// At least 1 ms, since Gloo counts whole milliseconds and takes 0 for the default of the group.
milliseconds time_left(GlooMesh::Clock::time_point deadline) {
  constexpr milliseconds kLongest = std::chrono::hours(1);
  const auto now = GlooMesh::Clock::now();
  if (deadline - now >= kLongest) return kLongest;
  return std::max(std::chrono::ceil<milliseconds>(deadline - now), milliseconds(1));
}

// The first words of the text of a failed connection: which rank was not reached; empty if that is unknown.
std::string unreached_ranks(c10d::Store& store, int size, const std::string& error) {
  try {
    const std::string found = unreached(store, size, error);
    if (found.empty()) return "";
    return found + ": GLOO_SOCKET_IFNAME names the network interface on which hosts reach each other; ";
  } catch (const std::exception&) {  // the store is gone
    return "";
  }
}

// Gloo writes to sockets without MSG_NOSIGNAL, so a write to a peer that is gone would end this process.
void ignore_sigpipe() {
  struct sigaction action{};
  if (sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, nullptr);
  }
}

// Starts threads with SCHED_BATCH until the end of the scope. Gloo's thread tries the lock of a connection again and
// again while a computing thread holds it to send. With this policy a message does not wake Gloo's thread in place of
// the computing thread, which would then wait for the core with the lock in its hands.
class BatchThreads {
 public:
  BatchThreads() : changes_(sched_getscheduler(0) == SCHED_OTHER) { use(SCHED_BATCH); }
  BatchThreads(const BatchThreads&) = delete;
  BatchThreads& operator=(const BatchThreads&) = delete;
  ~BatchThreads() { use(SCHED_OTHER); }

 private:
  void use(int policy) const {
    const sched_param no_priority{};
    if (changes_) sched_setscheduler(0, policy, &no_priority);
  }
  bool changes_;
};

// The text between `begin` and the next ']'.
std::optional<std::string> bracketed(std::string_view text, std::string_view begin) {
  const std::size_t at = text.find(begin);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + begin.size());
  return std::string(text.substr(0, text.find(']')));
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string key_of(int rank) {
  return fmt::format("place/{}", rank);
}

}  // namespace

void tell_place(c10d::Store& store, int rank, const std::string& device) {
  if (const auto address = bracketed(device, "addr=[")) store.set(key_of(rank), *address + " " + host_name());
}

std::string unreached(c10d::Store& store, int size, const std::string& error) {
  const auto address = bracketed(error, "remote=[");
  if (!address) return "";
  std::vector<int> ranks;
  std::string host;
  for (int rank = 0; rank < size; ++rank) {
    if (!store.check({key_of(rank)})) continue;
    const std::string place = store.get_to_str(key_of(rank));
    const std::size_t space = place.find(' ');
    if (place.substr(0, space) != *address) continue;
    ranks.push_back(rank);
    host = place.substr(space + 1);
  }
  if (ranks.empty()) return "";
  return fmt::format("host {} cannot reach {} {} on host {} ({})", host_name(), ranks.size() == 1 ? "rank" : "ranks",
                     fmt::join(ranks, ", "), host, *address);
}

GlooMesh::Transfer::Transfer(std::shared_ptr<GlooMesh> mesh, std::string step)
    : mesh_(std::move(mesh)), step_(std::move(step)) {}

GlooMesh::Transfer::~Transfer() {
  mesh_->forget(*this);
}

void GlooMesh::Transfer::wait(Clock::time_point deadline) {
  bool done = false;
  std::string detail = "the transfer was abandoned";
  if (const WorkRef work = mesh_->work_of(*this)) {
    try {
      done = work->wait(time_left(deadline));
    } catch (const std::exception& error) {
      detail = error.what();
    }
  }
  if (!done) mesh_->fail(step_, Clock::now() >= deadline, detail);
  mesh_->forget(*this);
}

GlooMesh::GlooMesh(GroupRef group, int rank, int size) : group_(std::move(group)), rank_(rank), size_(size) {}

GlooMesh::~GlooMesh() = default;

std::unique_ptr<GlooMesh::Transfer> GlooMesh::send(const at::Tensor& tensor, int peer, int tag,
                                                   const std::string& what) {
  return start(&c10d::ProcessGroupGloo::send, tensor, peer, tag,
               fmt::format("rank {}: {}: send to rank {}", rank_, what, peer));
}

std::unique_ptr<GlooMesh::Transfer> GlooMesh::recv(const at::Tensor& tensor, int peer, int tag,
                                                   const std::string& what) {
  return start(&c10d::ProcessGroupGloo::recv, tensor, peer, tag,
               fmt::format("rank {}: {}: receive from rank {}", rank_, what, peer));
}

std::unique_ptr<GlooMesh::Transfer> GlooMesh::start(Start start_work, const at::Tensor& tensor, int peer, int tag,
                                                    std::string step) {
  auto transfer = std::make_unique<Transfer>(shared_from_this(), std::move(step));
  GroupRef group;
  {
    const std::lock_guard lock(mutex_);
    group = group_;
  }
  if (!group) throw_if_aborted(transfer->step_);
  WorkRef work;
  try {
    std::vector<at::Tensor> tensors{tensor};
    work = ((*group).*start_work)(tensors, peer, tag);
  } catch (const std::exception& error) {
    fail(transfer->step_, /*timed_out=*/false, error.what());
  }
  const std::lock_guard lock(mutex_);
  if (!aborted_) {
    transfer->work_ = std::move(work);
    in_flight_.insert(transfer.get());
  }
  return transfer;
}

void GlooMesh::abort(const std::string& reason) {
  // Connections close when the group and every message buffer are destroyed. Both are destroyed here, whichever thread
  // started the messages, and without mutex_ held, because the group joins its threads.
  const std::lock_guard lock(abort_mutex_);
  GroupRef group;
  std::vector<WorkRef> works;
  {
    const std::lock_guard state_lock(mutex_);
    if (!aborted_) abort_reason_ = reason;
    aborted_ = true;
    group = std::move(group_);
    for (Transfer* transfer : in_flight_) works.push_back(std::move(transfer->work_));
    in_flight_.clear();
  }
  for (const WorkRef& work : works) work->abort();
}

void GlooMesh::fail(const std::string& step, bool timed_out, const std::string& detail) {
  throw_if_aborted(step);
  const std::string text = fmt::format("{}: {}", step, timed_out ? "timed out" : detail);
  abort(text);
  throw CommError(timed_out ? CommError::Kind::timeout : CommError::Kind::failed, text);
}

void GlooMesh::throw_if_aborted(const std::string& step) {
  const std::lock_guard lock(mutex_);
  if (aborted_) throw CommError(CommError::Kind::aborted, fmt::format("{}: aborted ({})", step, abort_reason_));
}

WorkRef GlooMesh::work_of(const Transfer& transfer) {
  const std::lock_guard lock(mutex_);
  return transfer.work_;
}

void GlooMesh::forget(Transfer& transfer) {
  WorkRef work;
  const std::lock_guard lock(mutex_);
  in_flight_.erase(&transfer);
  work = std::move(transfer.work_);
}

std::shared_ptr<GlooMesh> GlooMesh::connect(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            const GlooOptions& options) {
  using Gloo = c10d::ProcessGroupGloo;
  ignore_sigpipe();
  try {
    // Checked here, since Gloo would only report a failed assertion.
    if (options.interface && ::if_nametoindex(options.interface->c_str()) == 0) {
      throw std::invalid_argument("this machine has no such network interface");
    }
    auto own = Gloo::Options::create(options.connect_timeout);
    const BatchThreads of_the_device;
    own->devices = {options.interface ? Gloo::createDeviceForInterface(*options.interface)
                                      : Gloo::createDeviceForHostname(options.host)};
    tell_place(*store, rank, own->devices.front()->str());
    own->threads = 0;  // threads serve Gloo's collectives only; sends and receives run on the device's own thread
    return std::make_shared<GlooMesh>(c10::make_intrusive<Gloo>(store, rank, size, own), rank, size);
  } catch (const std::exception& error) {
    throw CommError(CommError::Kind::failed, fmt::format("rank {}: connecting {} ranks over {}: {}{}", rank, size,
                                                         options.interface.value_or(options.host),
                                                         unreached_ranks(*store, size, error.what()), error.what()));
  }
}

}  // namespace cp_pool
