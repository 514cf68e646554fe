#include "worker/mail_hub.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <string>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace cp_pool {

namespace {

int checked(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

class HubSocket {
 public:
  explicit HubSocket(int fd) : fd_(fd) {}
  HubSocket(HubSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  HubSocket& operator=(HubSocket&&) = delete;
  ~HubSocket() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

constexpr int kSocketKind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

void bind_and_listen(int fd, const sockaddr* address, socklen_t size) {
  checked(::bind(fd, address, size), "bind");
  checked(::listen(fd, SOMAXCONN), "listen");
}

// Listens at any address: over IPv6, which accepts IPv4 too, or over IPv4 if there is no IPv6.
HubSocket listen_anywhere() {
  HubSocket six(::socket(AF_INET6, kSocketKind, 0));
  if (six.get() >= 0) {
    const int off = 0;
    ::setsockopt(six.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_addr = in6addr_any;
    if (::bind(six.get(), reinterpret_cast<sockaddr*>(&any), sizeof any) == 0) {
      checked(::listen(six.get(), SOMAXCONN), "listen");
      return six;
    }
  }
  HubSocket four(checked(::socket(AF_INET, kSocketKind, 0), "socket"));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  bind_and_listen(four.get(), reinterpret_cast<sockaddr*>(&any), sizeof any);
  return four;
}

HubSocket listen_like(int like) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (like < 0 || ::getsockname(like, generic, &size) != 0) return listen_anywhere();
  if (address.ss_family == AF_INET) reinterpret_cast<sockaddr_in&>(address).sin_port = 0;
  if (address.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6&>(address).sin6_port = 0;
  HubSocket fd(checked(::socket(address.ss_family, kSocketKind, 0), "socket"));
  bind_and_listen(fd.get(), generic, size);
  return fd;
}

int port_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  checked(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), "getsockname");
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

struct RankConnection {
  explicit RankConnection(HubSocket socket) : fd(std::move(socket)) {}
  HubSocket fd;
  MailReader in;
  std::deque<Bytes> out;  // frames that the kernel has not accepted yet
  std::size_t sent = 0;   // bytes of the first frame that have been sent
  bool full = false;      // the kernel's buffer is full; epoll reports when it has room
};

}  // namespace

class MailHub::Hub {
 public:
  explicit Hub(int like)
      : listener_(listen_like(like)),
        epoll_(checked(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
        stop_(checked(::eventfd(0, EFD_CLOEXEC), "eventfd")) {
    watch(listener_.get(), EPOLLIN, EPOLL_CTL_ADD);
    watch(stop_.get(), EPOLLIN, EPOLL_CTL_ADD);
    thread_ = std::thread([this] { serve(); });
  }
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;
  ~Hub() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
  }

  [[nodiscard]] int port() const { return port_of(listener_.get()); }

  void push(const Box& box, std::span<const std::uint8_t> message) {
    if (box.of == Box::Of::rank0) return take_for_rank0(Bytes(message.begin(), message.end()));
    const std::lock_guard lock(mutex_);
    deliver(box, encode_mail(MailKind::push, box, message));
  }

  void on_rank0(std::function<void(const Bytes&)> take) {
    const std::lock_guard lock(rank0_mutex_);
    take_ = std::move(take);
    if (!take_) return;
    for (const Bytes& message : std::exchange(early_, {})) take_(message);
  }

 private:
  void watch(int fd, std::uint32_t events, int operation) const {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    checked(::epoll_ctl(epoll_.get(), operation, fd, &event), "epoll_ctl");
  }

  void serve() {
    constexpr int kAtOnce = 64;
    std::array<epoll_event, kAtOnce> events{};
    for (;;) {
      const int count = ::epoll_wait(epoll_.get(), events.data(), kAtOnce, -1);
      for (int i = 0; i < count; ++i) {
        const epoll_event& event = events.at(static_cast<std::size_t>(i));
        if (event.data.fd == stop_.get()) return;
        if (event.data.fd == listener_.get()) {
          accept_all();
        } else {
          serve(event.data.fd, event.events);
        }
      }
    }
  }

  void accept_all() {
    for (;;) {
      HubSocket fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd.get() < 0) {
        if (errno == EMFILE || errno == ENFILE) give_up();
        return;
      }
      const int on = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      ::setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
      const std::lock_guard lock(mutex_);
      watch(fd.get(), EPOLLIN, EPOLL_CTL_ADD);
      const int number = fd.get();
      connections_.emplace(number, RankConnection(std::move(fd)));
    }
  }

  // Ends the process: the rank would wait for ever, and the listener would stay ready for a connection that cannot be
  // accepted.
  [[noreturn]] static void give_up() {
    fmt::print(stderr,
               "cp-pool-worker: rank 0 has no file descriptor left to accept the connection of a rank: "
               "raise ulimit -n\n");
    std::fflush(nullptr);
    _exit(1);
  }

  void serve(int fd, std::uint32_t events) {
    bool open = true;
    if ((events & EPOLLOUT) != 0) {
      const std::lock_guard lock(mutex_);
      open = flush(connections_.at(fd));
    }
    if (open && (events & ~std::uint32_t{EPOLLOUT}) != 0) open = read_from(fd);
    if (!open) drop(fd);
  }

  // Returns false if the connection has ended or is not a rank's.
  bool read_from(int fd) {
    std::array<std::uint8_t, 65536> buffer;
    const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) return false;
    RankConnection& connection = connections_.at(fd);  // only this thread adds and removes connections
    connection.in.feed({buffer.data(), static_cast<std::size_t>(got)});
    try {
      while (std::optional<MailFrame> frame = connection.in.next()) take(fd, *std::move(frame));
    } catch (const MailError&) {
      return false;
    }
    return true;
  }

  void take(int fd, MailFrame frame) {
    if (frame.box.of == Box::Of::rank0 && frame.kind == MailKind::push) return take_for_rank0(std::move(frame.body));
    const std::lock_guard lock(mutex_);
    if (frame.kind == MailKind::push) {
      return deliver(frame.box, encode_mail(MailKind::push, frame.box, frame.body));
    }
    receivers_[frame.box] = fd;
    const auto waiting = waiting_.extract(frame.box);
    if (waiting.empty()) return;
    for (Bytes& message : waiting.mapped()) deliver(frame.box, std::move(message));
  }

  void take_for_rank0(Bytes message) {
    const std::lock_guard lock(rank0_mutex_);
    if (take_) {
      take_(message);
    } else {
      early_.push_back(std::move(message));
    }
  }

  // This function and the next one are called with mutex_ locked.
  void deliver(const Box& box, Bytes frame) {
    const auto receiver = receivers_.find(box);
    if (receiver == receivers_.end()) {
      waiting_[box].push_back(std::move(frame));
      return;
    }
    RankConnection& connection = connections_.at(receiver->second);
    connection.out.push_back(std::move(frame));
    // A broken connection is dropped by the hub's thread, which epoll informs too.
    if (!connection.full) flush(connection);
  }

  // Sends as much as the kernel accepts. Returns false if the connection is broken.
  bool flush(RankConnection& connection) const {
    const bool was_full = std::exchange(connection.full, false);
    while (!connection.out.empty() && !connection.full) {
      const Bytes& first = connection.out.front();
      const ssize_t got = ::send(connection.fd.get(), first.data() + connection.sent, first.size() - connection.sent,
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno != EAGAIN) return false;
      connection.full = got < 0;
      connection.sent += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
      if (connection.sent < first.size()) continue;
      connection.out.pop_front();
      connection.sent = 0;
    }
    if (connection.full != was_full) {
      watch(connection.fd.get(), connection.full ? EPOLLIN | EPOLLOUT : EPOLLIN, EPOLL_CTL_MOD);
    }
    return true;
  }

  void drop(int fd) {
    const std::lock_guard lock(mutex_);
    std::erase_if(receivers_, [fd](const auto& receiver) { return receiver.second == fd; });
    connections_.erase(fd);
  }

  HubSocket listener_;
  HubSocket epoll_;
  HubSocket stop_;
  std::mutex mutex_;  // guards the next three members
  std::map<int, RankConnection> connections_;
  std::map<Box, int> receivers_;
  std::map<Box, std::vector<Bytes>> waiting_;  // messages of boxes without a receiver
  std::mutex rank0_mutex_;
  std::function<void(const Bytes&)> take_;
  std::vector<Bytes> early_;  // messages that came before take_ was set
  std::thread thread_;
};

MailHub::MailHub(int like) : hub_(std::make_unique<Hub>(like)) {}

MailHub::~MailHub() = default;

int MailHub::port() const {
  return hub_->port();
}

void MailHub::push(const Box& box, std::span<const std::uint8_t> message) {
  hub_->push(box, message);
}

void MailHub::on_rank0(std::function<void(const Bytes&)> take) {
  hub_->on_rank0(std::move(take));
}

}  // namespace cp_pool
