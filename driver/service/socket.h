// The Unix socket of a service: where it is, and who may have it.
#pragma once

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <sys/types.h>

#include "driver/process/unique_fd.h"

namespace cp_pool::service {

inline constexpr const char* kDefaultName = "default";

// The socket cannot be used; what() is one line that names it and the cause.
class SocketError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Why this cannot be the name of a service; empty: it can.
std::string wrong_with_name(const std::string& name);

// $XDG_RUNTIME_DIR/cp-pool/NAME.sock; where that variable is not set, /tmp/cp-pool-UID/NAME.sock.
std::filesystem::path socket_path(const std::string& name);

// The socket that a service listens on. The folder is made for its user alone (0700), and so is the socket (0600). It
// leaves nothing there when it ends. What others have left that were killed is removed by the next one.
class ListeningService {
 public:
  // Throws SocketError: another service of the name lives (its pid is named), the folder belongs to somebody else, the
  // path is too long, ..
  explicit ListeningService(const std::filesystem::path& path);
  // Takes a socket that listens already, given by systemd; nothing is removed at the end.
  explicit ListeningService(UniqueFd listening) : fd_(std::move(listening)) {}
  ListeningService(const ListeningService&) = delete;
  ListeningService& operator=(const ListeningService&) = delete;
  ~ListeningService();

  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  std::filesystem::path path_;  // that is removed at the end; empty: none
  UniqueFd lock_;               // held while it lives
  UniqueFd fd_;
};

// The descriptor that systemd has opened for this process (LISTEN_PID, LISTEN_FDS); nullopt: none. Throws SocketError
// for more than one, or one that is no listening Unix socket.
std::optional<UniqueFd> socket_of_systemd();

struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
};
// nullopt: the descriptor is no socket with one.
std::optional<Peer> peer_of(int fd);

// A connection to the service that listens on the path; none: nobody does. Throws SocketError if it is that of another
// user, or cannot be reached for another reason.
UniqueFd connect_to(const std::filesystem::path& path);

}  // namespace cp_pool::service
