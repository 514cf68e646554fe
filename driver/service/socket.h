// The Unix socket of a service: its path, and who may use it.
#pragma once

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <sys/socket.h>

#include "cases/unique_fd.h"

namespace cp_pool::service {

inline constexpr const char* kDefaultName = "default";

// The socket cannot be used; what() is one line that names it and the cause.
class SocketError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Returns why this cannot be the name of a service; empty if it can.
std::string wrong_with_name(const std::string& name);

// Returns $XDG_RUNTIME_DIR/cp-pool/NAME.sock; if that variable is not set, /tmp/cp-pool-UID/NAME.sock.
std::filesystem::path socket_path(const std::string& name);

// The socket that a service listens on. Folder (0700) and socket (0600) are for their user alone. The service removes
// its files when it ends; files of services that were killed are removed by the next service.
class ListeningService {
 public:
  // Throws SocketError if another service has this name (its pid is named), the folder belongs to another user, the
  // path is too long, ..
  explicit ListeningService(const std::filesystem::path& path);
  // Takes a socket that already listens, as from systemd. It is not removed at the end.
  explicit ListeningService(UniqueFd listening) : fd_(std::move(listening)) {}
  ~ListeningService();

  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  std::filesystem::path path_;  // socket file to remove at the end; empty: none
  UniqueFd lock_;               // locks the name while the service lives
  UniqueFd fd_;
};

// Returns the listening descriptor that systemd has opened for this process (LISTEN_PID, LISTEN_FDS); nullopt: none.
// Throws SocketError if there are several, or if it is not a listening Unix socket.
std::optional<UniqueFd> socket_of_systemd();

// Returns the process at the other end; nullopt if the descriptor is no connected socket.
std::optional<ucred> peer_of(int fd);

// Connects to the service that listens on the path; an empty UniqueFd if none does. Throws SocketError if the service
// belongs to another user, or cannot be reached for another reason.
UniqueFd connect_to(const std::filesystem::path& path);

}  // namespace cp_pool::service
