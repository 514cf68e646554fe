// How the ranks of a worker group exchange messages apart from the data plane: rank 0 keeps a box of messages for each
// receiver (message_router.h), and ranks find it through a TCPStore. The control plane works while ranks wait in a
// collective, and reports at once that rank 0 is gone.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <c10/util/intrusive_ptr.h>

#include "cases/unique_fd.h"
#include "worker/message_router.h"
#include "worker/protocol/environment.h"
#include "worker/rank_messages.h"

namespace c10d {
class Store;
}

namespace cp_pool {

// The store cannot be reached, or rank 0 is gone.
class ControlPlaneError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Connects to rank 0's store, for one caller at a time. Throws ControlPlaneError.
c10::intrusive_ptr<c10d::Store> connect_store(const protocol::RankEnvironment& environment);

class MessageServer;

// One rank's connection to rank 0, for one thread. A message to rank 0 is one write, a message from it one read.
class RankConnection {
 public:
  // Receives the messages of a box. own_server: in the process of rank 0, to which this thread then hands its messages
  // itself. Throws ControlPlaneError.
  RankConnection(const protocol::RankEnvironment& environment, const Box& box, MessageServer* own_server);

  void to_rank0(const RankMessage& message);  // in order; throws ControlPlaneError
  // Returns nullopt if there is a deadline and no message has come by then. Throws ControlPlaneError.
  std::optional<Bytes> receive(const std::optional<std::chrono::steady_clock::time_point>& deadline);

 private:
  void send(const Bytes& frame);

  MessageServer* own_server_;
  UniqueFd fd_;
  MessageReader reader_;
};

// The connection of a thread that receives ComputeCommands or ControlCommands. ExitCommand or ControlPlaneError ends
// the stream.
template <typename Command>
class MessageClient : private RankConnection {
 public:
  explicit MessageClient(const protocol::RankEnvironment& environment, MessageServer* own_server = nullptr)
      : RankConnection(
            environment,
            {std::is_same_v<Command, ComputeCommand> ? Box::Of::compute : Box::Of::control, environment.rank},
            own_server) {}

  using RankConnection::to_rank0;
  Command receive() { return *receive_until({}); }
  // Returns nullopt if no command has come by the deadline.
  std::optional<Command> receive_until(const std::optional<std::chrono::steady_clock::time_point>& deadline) {
    const std::optional<Bytes> message = RankConnection::receive(deadline);
    return message ? std::optional(decode<Command>(*message)) : std::nullopt;
  }
};

// Rank 0's server. It has a store and the boxes. The store takes over the listening socket environment.master_fd, or
// listens at environment.master_addr and master_port (if 0, the kernel chooses the port). The boxes have a port of
// their own at the same address, which ranks read from the store. Ranks show environment.token there. If it is empty,
// they read a token from the store, which anybody can read who reaches the store.
class MessageServer {
 public:
  explicit MessageServer(const protocol::RankEnvironment& environment);  // throws ControlPlaneError
  ~MessageServer();
  [[nodiscard]] int port() const;  // the store's port

  // Send to every rank without waiting for any. Messages to one thread of a rank arrive in order.
  void to_compute(const ComputeCommand& message);
  void to_control_threads(const ControlCommand& message);
  // As those of MessageRouter. Messages that have already come are included.
  void on_rank0(std::function<void(const Bytes&)> take);
  void to_rank0(Bytes message);

  void delete_keys(const std::string& prefix);  // deletes the store's keys with this prefix

 private:
  struct Server;
  std::unique_ptr<Server> server_;
};

}  // namespace cp_pool
