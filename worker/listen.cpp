#include "worker/listen.h"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

namespace cp_pool {

namespace {

[[noreturn]] void fail(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

// Returns -1, with the cause in errno, if it cannot listen.
int try_to_listen(const sockaddr* address, socklen_t size) {
  const int fd = ::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int on = 1;
  const int off = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->sa_family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(fd, address, size) == 0 && ::listen(fd, SOMAXCONN) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

// Listens over IPv6, which accepts IPv4 too, or over IPv4 if there is no IPv6.
int listen_anywhere(std::uint16_t port) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_addr = in6addr_any;
  six.sin6_port = htons(port);
  int fd = try_to_listen(reinterpret_cast<const sockaddr*>(&six), sizeof six);
  if (fd >= 0) return fd;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(port);
  fd = try_to_listen(reinterpret_cast<const sockaddr*>(&four), sizeof four);
  if (fd < 0) fail(errno, fmt::format("listening at port {}", port));
  return fd;
}

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    constexpr std::uint32_t kNetwork = 127;
    return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24U == kNetwork;
  }
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

bool is_numeric(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return ::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

struct FreeList {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

}  // namespace

int listen_at(const std::string& host, std::uint16_t port, bool all_here) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), fmt::format("{}", port).c_str(), &hints, &found) != 0) return listen_anywhere(port);
  const std::unique_ptr<addrinfo, FreeList> list(found);
  const bool is_the_same_elsewhere = all_here || host == "localhost" || is_numeric(host);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (is_loopback(*each->ai_addr) && !is_the_same_elsewhere) continue;
    const int fd = try_to_listen(each->ai_addr, each->ai_addrlen);
    if (fd >= 0) return fd;
    if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT)
      fail(errno, fmt::format("listening at {} port {}", host, port));
  }
  return listen_anywhere(port);
}

int listen_beside(int listening) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::getsockname(listening, generic, &size) != 0) fail(errno, "getsockname");
  if (address.ss_family == AF_INET) reinterpret_cast<sockaddr_in&>(address).sin_port = 0;
  if (address.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6&>(address).sin6_port = 0;
  const int fd = try_to_listen(generic, size);
  if (fd < 0) fail(errno, "listening");
  return fd;
}

std::uint16_t port_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) fail(errno, "getsockname");
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

}  // namespace cp_pool
