// How the ranks of a worker group exchange messages apart from the data plane: boxes that rank 0 keeps (mail_hub.h),
// and a TCPStore, in which they find each other. Works while ranks sit in a collective, and shows at once when rank 0
// is gone.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "worker/mail_frames.h"
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

// A connection to rank 0's store. Serves one caller at a time. Throws ControlPlaneError.
c10::intrusive_ptr<c10d::Store> connect_store(const protocol::RankEnvironment& environment);

// One rank's connection to rank 0, for one thread: a message to it is a write, one from it a read.
class Mail {
 public:
  explicit Mail(const protocol::RankEnvironment& environment);  // throws ControlPlaneError
  Mail(const Mail&) = delete;
  Mail& operator=(const Mail&) = delete;
  ~Mail();

  void to_rank0(const RankMessage& message);  // in order; throws ControlPlaneError

  // Wait without limit; the end is an ExitCommand, or ControlPlaneError. One receiver a box.
  ComputeCommand receive_compute(int rank);
  WatchCommand receive_watch(int rank);
  // nullopt: there has been none until then.
  std::optional<ComputeCommand> receive_compute_until(int rank, std::chrono::steady_clock::time_point deadline);

 private:
  // nullopt: only if there is a deadline.
  std::optional<Bytes> pop(const Box& box, std::optional<std::chrono::steady_clock::time_point> deadline = {});

  class Connection;
  std::unique_ptr<Connection> connection_;
};

// Rank 0's server: the store, which listens on environment.master_fd, which it takes over, or binds
// environment.master_port, one that the kernel chooses if that is 0; and the boxes, on a port that the store tells.
class MailServer {
 public:
  explicit MailServer(const protocol::RankEnvironment& environment);  // throws ControlPlaneError
  MailServer(const MailServer&) = delete;
  MailServer& operator=(const MailServer&) = delete;
  ~MailServer();
  [[nodiscard]] int port() const;  // of the store

  // To every rank, without waiting for any. Messages to one thread of a rank arrive in order.
  void to_compute(const ComputeCommand& message);
  void to_watchers(const WatchCommand& message);
  // Calls `take` for each message to rank 0, the earlier ones included, on a thread of the server. Null ends that, and
  // returns when no call is under way.
  void on_rank0(std::function<void(const Bytes&)> take);

  void delete_keys(const std::string& prefix);  // of the store

 private:
  struct Server;
  std::unique_ptr<Server> server_;
};

}  // namespace cp_pool
