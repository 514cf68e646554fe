#include "worker/tcp.h"

#include <algorithm>
#include <arpa/inet.h>
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
#include <system_error>
#include <unistd.h>
#include <utility>

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
  if (poll_until(fd, POLLOUT, deadline) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
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

}  // namespace

UniqueFd connect_within(const lifeline::Endpoint& endpoint, milliseconds limit, std::string& why) {
  const auto deadline = Clock::now() + limit;
  const Addresses addresses = resolve(endpoint.host, endpoint.port, SOCK_STREAM, AI_ADDRCONFIG, why);
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    UniqueFd fd{::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    const int error = fd ? finish_connecting(fd.get(), *address, deadline) : errno;
    if (error == 0) {
      const int on = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      const int flags = ::fcntl(fd.get(), F_GETFL);
      ::fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK);
      return fd;
    }
    why = std::strerror(error);
  }
  return {};
}

int poll_until(int fd, short events, Clock::time_point deadline) {
  constexpr std::int64_t kLongestPollMs = 60'000;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    pollfd waiting{fd, events, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, kLongestPollMs)));
    if (ready > 0 || (ready < 0 && errno != EINTR)) return ready;
    if (ready == 0 && Clock::now() >= deadline) return 0;
  }
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
  const UniqueFd fd{::socket(addresses->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  const bool reached = fd && ::connect(fd.get(), addresses->ai_addr, addresses->ai_addrlen) == 0;
  return reached ? own_end(fd.get()) : "";
}

int listen_at(const std::string& host, std::uint16_t port, bool all_here) {
  std::string unused;
  const Addresses found = resolve(host, port, SOCK_STREAM, 0, unused);
  const bool is_the_same_elsewhere = all_here || host == "localhost" || is_numeric(host);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
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
