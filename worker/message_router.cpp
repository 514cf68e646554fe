#include "worker/message_router.h"

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
#include <set>
#include <string_view>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "worker/protocol/token.h"
#include "worker/tcp.h"

namespace cp_pool {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::string_view text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

int checked(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

struct RankConnection {
  RankConnection(UniqueFd socket, Clock::time_point limit_of_first_frame)
      : fd(std::move(socket)), limit(limit_of_first_frame) {}
  UniqueFd fd;
  Clock::time_point limit;  // of its first frame
  Bytes begun;              // what has come of its first frame
  MessageReader in;
  std::deque<Bytes> out;  // frames that the kernel has not accepted yet
  std::size_t sent = 0;   // bytes of the first frame that have been sent
  bool full = false;      // the kernel's buffer is full; epoll reports when it has room
};

}  // namespace

class MessageRouter::Router {
 public:
  Router(int listening, const std::string& token, milliseconds patience)
      : patience_(patience),
        first_frame_(encode_message(MessageKind::token, {},
                                    {reinterpret_cast<const std::uint8_t*>(token.data()), token.size()})),
        listener_(listening),
        epoll_(checked(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
        stop_(checked(::eventfd(0, EFD_CLOEXEC), "eventfd")) {
    watch(listener_.get(), EPOLLIN, EPOLL_CTL_ADD);
    watch(stop_.get(), EPOLLIN, EPOLL_CTL_ADD);
    thread_ = std::thread([this] { serve(); });
  }
  ~Router() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
  }

  [[nodiscard]] int port() const { return port_of(listener_.get()); }

  void push(const Box& box, std::span<const std::uint8_t> message) {
    const std::lock_guard lock(mutex_);
    deliver(box, encode_message(MessageKind::push, box, message));
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
      const int count = ::epoll_wait(epoll_.get(), events.data(), kAtOnce, patience_left());
      for (int i = 0; i < count; ++i) {
        const epoll_event& event = events.at(static_cast<std::size_t>(i));
        if (event.data.fd == stop_.get()) return;
        if (event.data.fd == listener_.get()) {
          accept_all();
        } else {
          serve(event.data.fd, event.events);
        }
      }
      drop_silent_connections();
    }
  }

  // Returns how long the router may wait for something to happen, in ms; -1: for ever.
  [[nodiscard]] int patience_left() const {
    if (newcomers_.empty()) return -1;
    const auto left = std::chrono::ceil<milliseconds>(newcomers_.begin()->first - Clock::now()).count();
    return static_cast<int>(std::max<std::int64_t>(left, 0));
  }

  void drop_silent_connections() {
    while (!newcomers_.empty() && newcomers_.begin()->first <= Clock::now()) {
      const auto newcomer = *newcomers_.begin();
      const int fd = newcomer.second;
      // If this process was stopped for a while, the token may have come without having been read.
      const bool open = read_first_frame(fd, connections_.at(fd));
      if (open && !newcomers_.contains(newcomer)) continue;
      if (open) report_stranger(fd, fmt::format("it has not introduced itself within {} ms", patience_.count()));
      drop(fd);
    }
  }

  // Ranks may be many, and so may the connections of a port scanner; only the first stranger is named.
  void report_stranger(int fd, const std::string& why) {
    if (std::exchange(named_a_stranger_, true)) return;
    fmt::print(stderr,
               "cp-pool-worker: rank 0 has closed a connection from {}, which is no rank of this pool: {} "
               "(further ones are not named)\n",
               other_end(fd), why);
    std::fflush(stderr);
  }

  void accept_all() {
    for (;;) {
      UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd) {
        if (errno == EMFILE || errno == ENFILE) give_up();
        return;
      }
      const int on = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      ::setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
      const std::lock_guard lock(mutex_);
      watch(fd.get(), EPOLLIN, EPOLL_CTL_ADD);
      const int number = fd.get();
      const Clock::time_point limit = Clock::now() + patience_;
      connections_.emplace(number, RankConnection(std::move(fd), limit));
      newcomers_.emplace(limit, number);
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

  // Reads no byte beyond the first frame, which has to be equal to first_frame_. Returns false if the connection has
  // ended or is not a rank's.
  bool read_first_frame(int fd, RankConnection& connection) {
    std::array<std::uint8_t, 256> buffer;
    const std::size_t wanted = std::min(first_frame_.size() - connection.begun.size(), buffer.size());
    const ssize_t got = ::recv(fd, buffer.data(), wanted, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) return false;
    connection.begun.insert(connection.begun.end(), buffer.data(), buffer.data() + got);
    const std::size_t size = connection.begun.size();
    if (size >= kMessageHeaderBytes &&
        !std::equal(first_frame_.begin(), first_frame_.begin() + kMessageHeaderBytes, connection.begun.begin())) {
      report_stranger(fd, "its first bytes are not those of a rank");
      return false;
    }
    if (size < first_frame_.size()) return true;
    if (!protocol::is_same_secret(text_of(connection.begun), text_of(first_frame_))) {
      report_stranger(fd, "it has another token");
      return false;
    }
    newcomers_.erase({connection.limit, fd});
    return true;
  }

  // Returns false if the connection has ended or is not a rank's.
  bool read_from(int fd) {
    RankConnection& connection = connections_.at(fd);  // only this thread adds and removes connections
    if (newcomers_.contains({connection.limit, fd})) return read_first_frame(fd, connection);
    std::array<std::uint8_t, 65536> buffer;
    const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) return false;
    connection.in.feed({buffer.data(), static_cast<std::size_t>(got)});
    try {
      while (std::optional<MessageFrame> frame = connection.in.next()) take(fd, *std::move(frame));
    } catch (const MessageError&) {
      return false;
    }
    return true;
  }

  void take(int fd, MessageFrame frame) {
    if (frame.kind == MessageKind::push) return take_for_rank0(std::move(frame.body));
    const std::lock_guard lock(mutex_);
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
    // A broken connection is dropped by the router's thread, which epoll informs too.
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
    newcomers_.erase({connections_.at(fd).limit, fd});
    connections_.erase(fd);
  }

  milliseconds patience_;
  Bytes first_frame_;  // the first frame of every rank
  UniqueFd listener_;
  UniqueFd epoll_;
  UniqueFd stop_;
  // Connections without a first frame yet, with the time at which they are closed. Used by the router's thread alone.
  std::set<std::pair<Clock::time_point, int>> newcomers_;
  bool named_a_stranger_ = false;
  std::mutex mutex_;  // guards the next three members
  std::map<int, RankConnection> connections_;
  std::map<Box, int> receivers_;
  std::map<Box, std::vector<Bytes>> waiting_;  // messages of boxes without a receiver
  std::mutex rank0_mutex_;
  std::function<void(const Bytes&)> take_;
  std::vector<Bytes> early_;  // messages that came before take_ was set
  std::thread thread_;
};

MessageRouter::MessageRouter(int listening, const std::string& token, milliseconds patience)
    : router_(std::make_unique<Router>(listening, token, patience)) {}

MessageRouter::~MessageRouter() = default;

int MessageRouter::port() const {
  return router_->port();
}

void MessageRouter::push(const Box& box, std::span<const std::uint8_t> message) {
  router_->push(box, message);
}

void MessageRouter::on_rank0(std::function<void(const Bytes&)> take) {
  router_->on_rank0(std::move(take));
}

}  // namespace cp_pool
