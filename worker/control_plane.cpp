#include "worker/control_plane.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <poll.h>
#include <span>
#include <string_view>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "worker/protocol/environment.h"
#include "worker/tcp.h"

namespace cp_pool {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kConnectTimeout{60};
constexpr const char* kPortKey = "cp-pool/message-port";
constexpr const char* kTokenKey = "cp-pool/token";  // only if ranks have none of their own

template <typename Action>
auto translate(const char* what, Action action) {
  try {
    return action();
  } catch (const c10::Error& e) {
    throw ControlPlaneError(fmt::format("control plane: {}: {}", what, e.what_without_backtrace()));
  } catch (const std::system_error& e) {
    throw ControlPlaneError(fmt::format("control plane: {}", e.what()));
  }
}

// listening: the socket that the server takes over; none for a client.
c10::intrusive_ptr<c10d::TCPStore> open_store(const protocol::RankEnvironment& environment,
                                              std::optional<int> listening = std::nullopt) {
  c10d::TCPStoreOptions options;
  options.port = listening ? port_of(*listening) : environment.master_port;
  options.isServer = listening.has_value();
  options.waitWorkers = false;
  options.timeout = kConnectTimeout;
  options.masterListenFd = listening;
  return translate("connecting", [&] { return c10::make_intrusive<c10d::TCPStore>(environment.master_addr, options); });
}

std::string look_up(c10d::Store& store, const char* key) {
  const auto text = translate("looking up where rank 0 takes messages", [&] { return store.get(key); });
  return {text.begin(), text.end()};
}

Bytes bytes_of(std::string_view text) {
  return {text.begin(), text.end()};
}

// Returns the socket for rank 0's store; nullopt if torchrun serves a store for its ranks at the master's port, which
// they then use.
std::optional<int> socket_of_store(const protocol::RankEnvironment& environment) {
  if (environment.master_fd) return environment.master_fd;
  try {
    return listen_at(environment.master_addr, environment.master_port, environment.on_one_host);
  } catch (const std::system_error& error) {
    const bool of_torchrun = protocol::process_variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
    if (of_torchrun && error.code() == std::errc::address_in_use) return std::nullopt;
    throw;
  }
}

}  // namespace

c10::intrusive_ptr<c10d::Store> connect_store(const protocol::RankEnvironment& environment) {
  return open_store(environment);
}

RankConnection::RankConnection(const protocol::RankEnvironment& environment, const Box& box, MessageServer* own_server)
    : own_server_(own_server) {
  const auto store = open_store(environment);
  const int port = std::stoi(look_up(*store, kPortKey));
  const std::string token = environment.token.empty() ? look_up(*store, kTokenKey) : environment.token;
  std::string why;
  fd_ = connect_within({environment.master_addr, static_cast<std::uint16_t>(port)}, kConnectTimeout, why);
  if (!fd_) {
    throw ControlPlaneError(
        fmt::format("control plane: connecting to rank 0 at {} port {}: {}", environment.master_addr, port, why));
  }
  set_option(fd_.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  send(greeting_of(box, token));
}

void RankConnection::send(const Bytes& frame) {
  if (!send_all(fd_.get(), std::as_bytes(std::span{frame}))) {
    throw ControlPlaneError(fmt::format("control plane: sending: {}", std::strerror(errno)));
  }
}

void RankConnection::to_rank0(const RankMessage& message) {
  Bytes bytes = encode(message);
  if (own_server_ != nullptr) return own_server_->to_rank0(std::move(bytes));
  send(frame_of(bytes));
}

std::optional<Bytes> RankConnection::receive(const std::optional<Clock::time_point>& deadline) {
  for (;;) {
    if (std::optional<Bytes> message = reader_.next()) return message;
    const int ready = deadline ? poll_until(fd_.get(), POLLIN, *deadline) : 1;
    if (ready == 0) return std::nullopt;
    if (ready < 0) throw ControlPlaneError(fmt::format("control plane: waiting: {}", std::strerror(errno)));
    std::array<std::uint8_t, 65536> buffer;
    const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) throw ControlPlaneError("control plane: receiving: rank 0 has closed the connection");
    if (got < 0) throw ControlPlaneError(fmt::format("control plane: receiving: {}", std::strerror(errno)));
    reader_.feed({buffer.data(), static_cast<std::size_t>(got)});
  }
}

struct MessageServer::Server {
  explicit Server(const protocol::RankEnvironment& environment)
      : Server(environment, environment.token.empty() ? protocol::random_token() : environment.token) {}
  Server(const protocol::RankEnvironment& environment, const std::string& token)
      : world_size(environment.world_size),
        listening(socket_of_store(environment)),
        router(listening ? listen_beside(*listening) : listen_at(environment.master_addr, 0, environment.on_one_host),
               token),
        store(open_store(environment, listening)) {
    if (environment.token.empty()) store->set(kTokenKey, bytes_of(token));
    store->set(kPortKey, bytes_of(std::to_string(router.port())));
  }
  void push_all(Box::Of of, const Bytes& message) {
    for (int rank = 0; rank < world_size; ++rank) router.push({of, rank}, message);
  }

  int world_size;
  std::optional<int> listening;  // the store's socket, which the store owns
  MessageRouter router;
  c10::intrusive_ptr<c10d::TCPStore> store;
};

MessageServer::MessageServer(const protocol::RankEnvironment& environment)
    : server_(translate("listening", [&] { return std::make_unique<Server>(environment); })) {}

MessageServer::~MessageServer() = default;

int MessageServer::port() const {
  return server_->store->getPort();
}

void MessageServer::to_compute(const ComputeCommand& message) {
  server_->push_all(Box::Of::compute, encode(message));
}
void MessageServer::to_control_threads(const ControlCommand& message) {
  server_->push_all(Box::Of::control, encode(message));
}

void MessageServer::on_rank0(std::function<void(const Bytes&)> take) {
  server_->router.on_rank0(std::move(take));
}

void MessageServer::to_rank0(Bytes message) {
  server_->router.to_rank0(std::move(message));
}

void MessageServer::delete_keys(const std::string& prefix) {
  translate("deleting keys", [&] {
    for (std::string key : server_->store->listKeys()) {
      if (key.starts_with('/')) key.erase(0, 1);  // the store's own prefix
      if (key.starts_with(prefix)) server_->store->deleteKey(key);
    }
  });
}

}  // namespace cp_pool
