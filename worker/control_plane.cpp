#include "worker/control_plane.h"

#include <chrono>
#include <utility>

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace cp_pool {

namespace {

// Long, because a wait that ends by itself logs warnings and throws: an idle worker must be silent. Waits end when mail
// comes or the connection is lost.
constexpr std::chrono::hours kIdleSlice{6};
constexpr std::chrono::seconds kConnectTimeout{60};

std::string compute_box(int rank) {
  return fmt::format("compute/{}", rank);
}
std::string watch_box(int rank) {
  return fmt::format("watch/{}", rank);
}
constexpr const char* kRank0Box = "rank0";

template <typename Action>
auto translate(const char* what, Action action) {
  try {
    return action();
  } catch (const c10::Error& e) {
    throw ControlPlaneError(fmt::format("control plane: {}: {}", what, e.what_without_backtrace()));
  }
}

c10::intrusive_ptr<c10d::TCPStore> open_store(const protocol::RankEnvironment& environment, bool server) {
  c10d::TCPStoreOptions options;
  options.port = environment.master_port;
  options.isServer = server;
  options.waitWorkers = false;
  options.timeout = kConnectTimeout;
  if (server) options.masterListenFd = environment.master_fd;
  return translate("connecting", [&] { return c10::make_intrusive<c10d::TCPStore>(environment.master_addr, options); });
}

}  // namespace

struct Mail::Connection {
  c10::intrusive_ptr<c10d::Store> store;
};

Mail::Mail(const protocol::RankEnvironment& environment)
    : connection_(std::make_unique<Connection>(Connection{open_store(environment, false)})) {}

Mail::~Mail() = default;

const c10::intrusive_ptr<c10d::Store>& Mail::store() const {
  return connection_->store;
}

void Mail::push(const std::string& box, const Bytes& bytes) {
  translate("sending", [&] { connection_->store->queuePush(box, bytes); });
}

Bytes Mail::pop(const std::string& box) {
  connection_->store->setTimeout(kIdleSlice);
  for (;;) {
    try {
      return translate("receiving", [&] { return connection_->store->queuePop(box, /*block=*/true); });
    } catch (const ControlPlaneError&) {
      // A slice that ended leaves a connection that works.
      translate("receiving", [&] { return connection_->store->queueLen(box); });
    }
  }
}

void Mail::to_compute(int rank, const ComputeCommand& message) {
  push(compute_box(rank), encode(message));
}
void Mail::to_watcher(int rank, const WatchCommand& message) {
  push(watch_box(rank), encode(message));
}
void Mail::to_rank0(const RankMessage& message) {
  push(kRank0Box, encode(message));
}

ComputeCommand Mail::receive_compute(int rank) {
  return decode_compute_command(pop(compute_box(rank)));
}
WatchCommand Mail::receive_watch(int rank) {
  return decode_watch_command(pop(watch_box(rank)));
}
RankMessage Mail::receive_rank0() {
  return decode_rank_message(pop(kRank0Box));
}

void Mail::delete_keys(const std::string& prefix) {
  translate("deleting keys", [&] {
    for (std::string key : connection_->store->listKeys()) {
      if (key.starts_with('/')) key.erase(0, 1);  // the store's own prefix
      if (key.starts_with(prefix)) connection_->store->deleteKey(key);
    }
  });
}

struct MailServer::Server {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

MailServer::MailServer(const protocol::RankEnvironment& environment)
    : server_(std::make_unique<Server>(Server{open_store(environment, true)})) {}

MailServer::~MailServer() = default;

int MailServer::port() const {
  return server_->store->getPort();
}

}  // namespace cp_pool
