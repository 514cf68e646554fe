#include "worker/connect.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

namespace cp_pool {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses resolve(const std::string& host, int port, int type, int flags, std::string& why) {
  addrinfo hints{};
  hints.ai_socktype = type;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), fmt::format("{}", port).c_str(), &hints, &list);
  if (error != 0) why = gai_strerror(error);
  return Addresses(error == 0 ? list : nullptr);
}

// Returns 0, or the errno of the failed connection.
int finish_connecting(int fd, const addrinfo& address, Clock::time_point deadline) {
  if (::connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    pollfd connected{fd, POLLOUT, 0};
    const int ready = ::poll(&connected, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
  }
}

std::string numeric(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  const int error =
      getnameinfo(address, size, text.data(), static_cast<socklen_t>(text.size()), nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? text.data() : "";
}

// which: getsockname or getpeername
std::string end_of(int fd, int (*which)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (which(fd, generic, &size) != 0) return "";
  std::string text = numeric(generic, size);
  constexpr std::string_view kMapped = "::ffff:";  // an IPv4 address on an IPv6 socket
  return text.starts_with(kMapped) ? text.substr(kMapped.size()) : text;
}

}  // namespace

int connect_within(const lifeline::Endpoint& endpoint, milliseconds limit, std::string& why) {
  const auto deadline = Clock::now() + limit;
  const Addresses addresses = resolve(endpoint.host, endpoint.port, SOCK_STREAM, AI_ADDRCONFIG, why);
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    const int fd = ::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
      why = std::strerror(errno);
      continue;
    }
    const int error = finish_connecting(fd, *address, deadline);
    if (error == 0) {
      const int on = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      const int flags = ::fcntl(fd, F_GETFL);
      ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
      return fd;
    }
    why = std::strerror(error);
    ::close(fd);
  }
  return -1;
}

bool send_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  return true;
}

std::string own_end(int fd) {
  return end_of(fd, ::getsockname);
}

std::string other_end(int fd) {
  return end_of(fd, ::getpeername);
}

std::string address_towards(const std::string& address) {
  std::string unused;
  constexpr int kAnyPort = 9;  // nothing is sent
  const Addresses addresses = resolve(address, kAnyPort, SOCK_DGRAM, AI_NUMERICHOST, unused);
  if (!addresses) return "";
  const int fd = ::socket(addresses->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return "";
  const bool reached = ::connect(fd, addresses->ai_addr, addresses->ai_addrlen) == 0;
  std::string own = reached ? own_end(fd) : "";
  ::close(fd);
  return own;
}

}  // namespace cp_pool
