#include "cp_core/comm/gloo/gloo_mesh.h"

#include <algorithm>
#include <csignal>
#include <exception>
#include <mutex>
#include <net/if.h>
#include <stdexcept>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "cp_core/comm/communicator.h"
#include "cp_core/comm/gloo/places.h"

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

class Mesh;

class GlooTransfer final : public GlooMesh::Transfer {
 public:
  GlooTransfer(std::shared_ptr<Mesh> mesh, std::string direction, int peer)
      : mesh_(std::move(mesh)), direction_(std::move(direction)), peer_(peer) {}
  ~GlooTransfer() override;
  void wait(GlooMesh::Clock::time_point deadline, const std::string& what) override;

 private:
  friend class Mesh;
  std::shared_ptr<Mesh> mesh_;
  std::string direction_;
  int peer_;
  WorkRef work_;  // guarded by the mesh's mutex; null once the transfer is complete or abandoned
};

class Mesh final : public GlooMesh, public std::enable_shared_from_this<Mesh> {
 public:
  Mesh(GroupRef group, int rank, int size) : group_(std::move(group)), rank_(rank), size_(size) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  std::unique_ptr<Transfer> send(const at::Tensor& tensor, int peer, int tag, const std::string& what) override {
    return start("send to", peer, what, [&](c10d::ProcessGroupGloo& group) {
      std::vector<at::Tensor> tensors{tensor};
      return group.send(tensors, peer, tag);
    });
  }

  std::unique_ptr<Transfer> recv(const at::Tensor& tensor, int peer, int tag, const std::string& what) override {
    return start("receive from", peer, what, [&](c10d::ProcessGroupGloo& group) {
      std::vector<at::Tensor> tensors{tensor};
      return group.recv(tensors, peer, tag);
    });
  }

  void abort(const std::string& reason) override {
    // Connections close when the group and every message buffer are destroyed. Both are destroyed here, whichever
    // thread started the messages, and without mutex_ held, because the group joins its threads.
    const std::lock_guard lock(abort_mutex_);
    GroupRef group;
    std::vector<WorkRef> works;
    {
      const std::lock_guard state_lock(mutex_);
      if (!aborted_) abort_reason_ = reason;
      aborted_ = true;
      group = std::move(group_);
      for (GlooTransfer* transfer : in_flight_) works.push_back(std::move(transfer->work_));
      in_flight_.clear();
    }
    for (const WorkRef& work : works) work->abort();
  }

  [[noreturn]] void fail(const GlooTransfer& transfer, const std::string& what, bool timed_out,
                         const std::string& detail) {
    const std::string step = describe(transfer.direction_, transfer.peer_, what);
    throw_if_aborted(step);
    const std::string text = fmt::format("{}: {}", step, timed_out ? "timed out" : detail);
    abort(text);
    throw CommError(timed_out ? CommError::Kind::timeout : CommError::Kind::failed, text);
  }

  void throw_if_aborted(const std::string& step) {
    const std::lock_guard lock(mutex_);
    if (aborted_) throw CommError(CommError::Kind::aborted, fmt::format("{}: aborted ({})", step, abort_reason_));
  }

  WorkRef work_of(const GlooTransfer& transfer) {
    const std::lock_guard lock(mutex_);
    return transfer.work_;
  }

  void forget(GlooTransfer& transfer) {
    WorkRef work;
    const std::lock_guard lock(mutex_);
    in_flight_.erase(&transfer);
    work = std::move(transfer.work_);
  }

 private:
  template <typename Start>
  std::unique_ptr<Transfer> start(const char* direction, int peer, const std::string& what, Start&& start_work) {
    auto transfer = std::make_unique<GlooTransfer>(shared_from_this(), direction, peer);
    GroupRef group;
    {
      const std::lock_guard lock(mutex_);
      group = group_;
    }
    if (!group) throw_if_aborted(describe(direction, peer, what));
    WorkRef work;
    try {
      work = start_work(*group);
    } catch (const std::exception& error) {
      fail(*transfer, what, /*timed_out=*/false, error.what());
    }
    {
      const std::lock_guard lock(mutex_);
      if (!aborted_) {
        transfer->work_ = std::move(work);
        in_flight_.insert(transfer.get());
      }
    }
    return transfer;
  }

  [[nodiscard]] std::string describe(const std::string& direction, int peer, const std::string& what) const {
    return fmt::format("rank {}: {}: {} rank {}", rank_, what, direction, peer);
  }

  std::mutex abort_mutex_;  // makes a second abort() return only after the first has closed the connections
  std::mutex mutex_;
  GroupRef group_;
  bool aborted_ = false;
  std::string abort_reason_;
  std::unordered_set<GlooTransfer*> in_flight_;
  int rank_;
  int size_;
};

GlooTransfer::~GlooTransfer() {
  mesh_->forget(*this);
}

void GlooTransfer::wait(GlooMesh::Clock::time_point deadline, const std::string& what) {
  bool done = false;
  std::string detail = "the transfer was abandoned";
  if (const WorkRef work = mesh_->work_of(*this)) {
    try {
      done = work->wait(time_left(deadline));
    } catch (const std::exception& error) {
      detail = error.what();
    }
  }
  if (!done) mesh_->fail(*this, what, GlooMesh::Clock::now() >= deadline, detail);
  mesh_->forget(*this);
}

}  // namespace

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
    own->devices = {options.interface ? Gloo::createDeviceForInterface(*options.interface)
                                      : Gloo::createDeviceForHostname(options.host)};
    tell_place(*store, rank, own->devices.front()->str());
    own->threads = 0;  // threads serve Gloo's collectives only; sends and receives run on the device's own thread
    return std::make_shared<Mesh>(c10::make_intrusive<Gloo>(store, rank, size, own), rank, size);
  } catch (const std::exception& error) {
    throw CommError(CommError::Kind::failed, fmt::format("rank {}: connecting {} ranks over {}: {}{}", rank, size,
                                                         options.interface.value_or(options.host),
                                                         unreached_ranks(*store, size, error.what()), error.what()));
  }
}

}  // namespace cp_pool
