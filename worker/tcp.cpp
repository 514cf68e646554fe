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
#include <thread>
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

// which: getsockname or getpeername
std::string end_of(int fd, int (*which)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  std::array<char, NI_MAXHOST> host{};
  if (which(fd, generic, &size) != 0 ||
      getnameinfo(generic, size, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  const std::string text = host.data();
  constexpr std::string_view kMapped = "::ffff:";  // an IPv4 address on an IPv6 socket
  return text.starts_with(kMapped) ? text.substr(kMapped.size()) : text;
}

[[noreturn]] void fail(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

// The address that a socket is bound to. The port of an IPv4 address has the same place.
sockaddr_in6 bound_address(int fd) {
  sockaddr_in6 address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) fail(errno, "getsockname");
  return address;
}

// Returns -1, with the cause in errno, if it cannot listen.
int try_to_listen(const sockaddr* address, socklen_t size) {
  const int fd = ::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (address->sa_family == AF_INET6) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(fd, address, size) == 0 && ::listen(fd, SOMAXCONN) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

// Listens over IPv6, which accepts IPv4 too, or over IPv4 if there is no IPv6.
int listen_anywhere(std::uint16_t port) {
  std::string unused;
  for (const char* const everywhere : {"::", "0.0.0.0"}) {
    const Addresses address = resolve(everywhere, port, SOCK_STREAM, AI_NUMERICHOST, unused);
    const int fd = address ? try_to_listen(address->ai_addr, address->ai_addrlen) : -1;
    if (fd >= 0) return fd;
  }
  fail(errno, fmt::format("listening at port {}", port));
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
      set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
      const int flags = ::fcntl(fd.get(), F_GETFL);
      ::fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK);
      return fd;
    }
    why = std::strerror(error);
  }
  return {};
}

Connected connect_to_any(const std::vector<lifeline::Endpoint>& endpoints, milliseconds limit,
                         const std::function<bool(int fd, std::string& why)>& accepts, std::string& why) {
  constexpr std::chrono::seconds kOneTry{3};
  constexpr milliseconds kBetweenRounds{200};
  const auto deadline = Clock::now() + limit;
  do {
    why.clear();
    for (const lifeline::Endpoint& endpoint : endpoints) {
      std::string reason;
      UniqueFd fd = connect_within(endpoint, kOneTry, reason);
      if (fd && accepts(fd.get(), reason)) return {std::move(fd), endpoint};
      why += fmt::format("{}{}: {}", why.empty() ? "" : ", ", lifeline::to_string(endpoint), reason);
    }
    std::this_thread::sleep_for(kBetweenRounds);
  } while (Clock::now() < deadline);
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
  sockaddr_in6 address = bound_address(listening);
  address.sin6_port = 0;
  const int fd = try_to_listen(reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if (fd < 0) fail(errno, "listening");
  return fd;
}

void set_option(int fd, int level, int name, int value) {
  ::setsockopt(fd, level, name, &value, sizeof value);
}

std::uint16_t port_of(int fd) {
  return ntohs(bound_address(fd).sin6_port);
}

}  // namespace cp_pool
