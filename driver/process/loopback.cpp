#include "driver/process/loopback.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <system_error>

#include <fmt/format.h>

#include "driver/process/spawn.h"

namespace cp_pool {

namespace {

constexpr int kPatienceMs = 1000;

bool is_want_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE;
}

// Returns the errno of connecting; 0 if it succeeds.
int connect_error(std::uint16_t port) {
  const UniqueFd client{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!client) return errno;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  if (::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd connected{.fd = client.get(), .events = POLLOUT, .revents = 0};
  if (::poll(&connected, 1, kPatienceMs) != 1) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(client.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

}  // namespace

std::string loopback_trouble() {
  int error = 0;
  try {
    const ListeningSocket server = listen_on_loopback();
    error = connect_error(server.port);
  } catch (const std::system_error& e) {
    error = e.code().value();
  }
  if (error == 0 || is_want_of_descriptors(error)) return "";
  return fmt::format("127.0.0.1 cannot be reached ({}): is the loopback interface up?", std::strerror(error));
}

}  // namespace cp_pool
