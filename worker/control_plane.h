// How the ranks of a worker group exchange messages apart from the data plane: mailboxes in a TCPStore that rank 0
// serves. Works while ranks sit in a collective, and shows at once when rank 0 is gone.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include <c10/util/intrusive_ptr.h>

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

// One connection to the store. A connection serves one caller at a time, and a waiting receive keeps it busy: every
// thread has its own.
class Mail {
 public:
  explicit Mail(const protocol::RankEnvironment& environment);  // throws ControlPlaneError
  Mail(const Mail&) = delete;
  Mail& operator=(const Mail&) = delete;
  ~Mail();

  // Messages of one sender arrive in order. Throw ControlPlaneError.
  void to_compute(int rank, const ComputeCommand& message);
  void to_watcher(int rank, const WatchCommand& message);
  void to_rank0(const RankMessage& message);

  // Wait without limit; the end is an ExitCommand, or ControlPlaneError. One receiver a box.
  ComputeCommand receive_compute(int rank);
  WatchCommand receive_watch(int rank);
  RankMessage receive_rank0();

  void delete_keys(const std::string& prefix);

  // Keys for data-plane rendezvous. Not to be used while another thread uses this connection.
  [[nodiscard]] const c10::intrusive_ptr<c10d::Store>& store() const;

 private:
  void push(const std::string& box, const Bytes& bytes);
  Bytes pop(const std::string& box);

  struct Connection;
  std::unique_ptr<Connection> connection_;
};

// Rank 0's server. Listens on environment.master_fd, which it takes over, or binds environment.master_port; one that
// the kernel chooses if that is 0.
class MailServer {
 public:
  explicit MailServer(const protocol::RankEnvironment& environment);  // throws ControlPlaneError
  MailServer(const MailServer&) = delete;
  MailServer& operator=(const MailServer&) = delete;
  ~MailServer();
  [[nodiscard]] int port() const;

 private:
  struct Server;
  std::unique_ptr<Server> server_;
};

}  // namespace cp_pool
