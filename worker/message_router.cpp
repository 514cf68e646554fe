#include "worker/message_router.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdexcept>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "worker/protocol/environment.h"

namespace cp_pool {

namespace {

using std::chrono::milliseconds;

// The part of a greeting that is the same for all ranks of any pool.
constexpr std::size_t kSameForAll = offsetof(Greeting, box);

void expect_size(std::size_t bytes) {
  constexpr std::size_t kLargest = std::size_t{256} << 20U;
  if (bytes > kLargest) throw std::length_error("a message between ranks is larger than 256 MiB");
}

std::string_view text_of(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

int checked(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

// Ends the process: the rank would wait for ever, and the listener would stay ready for a connection that cannot be
// accepted.
[[noreturn]] void give_up() {
  fmt::print(stderr,
             "cp-pool-worker: rank 0 has no file descriptor left to accept the connection of a rank: "
             "raise ulimit -n\n");
  std::fflush(nullptr);
  _exit(1);
}

}  // namespace

Bytes greeting_of(const Box& box, std::string_view token) {
  Greeting head;
  head.token_bytes = static_cast<std::uint32_t>(token.size());
  head.box = box;
  Bytes out(sizeof head);
  std::memcpy(out.data(), &head, sizeof head);
  out.insert(out.end(), token.begin(), token.end());
  return out;
}

Bytes frame_of(std::span<const std::uint8_t> message) {
  expect_size(message.size());
  const auto size = static_cast<std::uint32_t>(message.size());
  Bytes out(sizeof size);
  std::memcpy(out.data(), &size, sizeof size);
  out.insert(out.end(), message.begin(), message.end());
  return out;
}

void MessageReader::feed(std::span<const std::uint8_t> bytes) {
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(taken_));
  taken_ = 0;
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

std::optional<Bytes> MessageReader::next() {
  const std::span left = std::span(bytes_).subspan(taken_);
  std::uint32_t size = 0;
  if (left.size() < sizeof size) return std::nullopt;
  std::memcpy(&size, left.data(), sizeof size);
  expect_size(size);
  if (left.size() < sizeof size + size) return std::nullopt;
  taken_ += sizeof size + size;
  const std::span message = left.subspan(sizeof size, size);
  return Bytes(message.begin(), message.end());
}

MessageRouter::MessageRouter(int listening, std::string_view token, milliseconds patience)
    : patience_(patience),
      greeting_(text_of(greeting_of({}, token))),
      listener_(listening),
      epoll_(checked(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      stop_(checked(::eventfd(0, EFD_CLOEXEC), "eventfd")) {
  watch(listener_.get(), EPOLLIN, EPOLL_CTL_ADD);
  watch(stop_.get(), EPOLLIN, EPOLL_CTL_ADD);
  thread_ = std::thread([this] { serve(); });
}

MessageRouter::~MessageRouter() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void MessageRouter::push(const Box& box, std::span<const std::uint8_t> message) {
  const std::lock_guard lock(mutex_);
  deliver(box, frame_of(message));
}

void MessageRouter::on_rank0(std::function<void(const Bytes&)> take) {
  const std::lock_guard lock(rank0_mutex_);
  take_ = std::move(take);
  if (!take_) return;
  for (const Bytes& message : std::exchange(early_, {})) take_(message);
}

void MessageRouter::to_rank0(Bytes message) {
  const std::lock_guard lock(rank0_mutex_);
  if (take_) {
    take_(message);
  } else {
    early_.push_back(std::move(message));
  }
}

void MessageRouter::watch(int fd, std::uint32_t events, int operation) const {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  checked(::epoll_ctl(epoll_.get(), operation, fd, &event), "epoll_ctl");
}

void MessageRouter::serve() {
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
int MessageRouter::patience_left() const {
  if (newcomers_.empty()) return -1;
  const auto left = std::chrono::ceil<milliseconds>(newcomers_.begin()->first - Clock::now()).count();
  return static_cast<int>(std::max<std::int64_t>(left, 0));
}

void MessageRouter::drop_silent_connections() {
  while (!newcomers_.empty() && newcomers_.begin()->first <= Clock::now()) {
    const auto newcomer = *newcomers_.begin();
    const int fd = newcomer.second;
    // If this process was stopped for a while, the token may have come without having been read.
    const bool open = read_greeting(fd, connections_.at(fd));
    if (open && !newcomers_.contains(newcomer)) continue;
    if (open) report_stranger(fd, fmt::format("it has not introduced itself within {} ms", patience_.count()));
    drop(fd);
  }
}

// Ranks may be many, and so may the connections of a port scanner; only the first stranger is named.
void MessageRouter::report_stranger(int fd, const std::string& why) {
  if (std::exchange(named_a_stranger_, true)) return;
  fmt::print(stderr,
             "cp-pool-worker: rank 0 has closed a connection from {}, which is no rank of this pool: {} "
             "(further ones are not named)\n",
             other_end(fd), why);
  std::fflush(stderr);
}

void MessageRouter::accept_all() {
  for (;;) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if (errno == EMFILE || errno == ENFILE) give_up();
      return;
    }
    set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
    const std::lock_guard lock(mutex_);
    const int number = fd.get();
    watch(number, EPOLLIN, EPOLL_CTL_ADD);
    const Clock::time_point limit = Clock::now() + patience_;
    connections_.emplace(number, Connection{.fd = std::move(fd), .limit = limit});
    newcomers_.emplace(limit, number);
  }
}

void MessageRouter::serve(int fd, std::uint32_t events) {
  bool open = true;
  if ((events & EPOLLOUT) != 0) {
    const std::lock_guard lock(mutex_);
    open = flush(connections_.at(fd));
  }
  if (open && (events & ~std::uint32_t{EPOLLOUT}) != 0) open = read_from(fd);
  if (!open) drop(fd);
}

// Reads no byte behind the greeting. Returns false if the connection has ended or is not a rank's.
bool MessageRouter::read_greeting(int fd, Connection& connection) {
  std::string& begun = connection.greeting;
  std::array<char, 256> buffer;
  const ssize_t got = ::recv(fd, buffer.data(), std::min(greeting_.size() - begun.size(), buffer.size()), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return false;
  begun.append(buffer.data(), static_cast<std::size_t>(got));
  if (begun.size() >= kSameForAll && !begun.starts_with(std::string_view(greeting_).substr(0, kSameForAll))) {
    report_stranger(fd, "its first bytes are not those of a rank");
    return false;
  }
  if (begun.size() < greeting_.size()) return true;
  Greeting head;
  std::memcpy(&head, begun.data(), sizeof head);
  if (!protocol::is_same_secret(begun.substr(sizeof head), greeting_.substr(sizeof head))) {
    report_stranger(fd, "it has another token");
    return false;
  }
  newcomers_.erase({connection.limit, fd});
  const std::lock_guard lock(mutex_);
  receivers_[head.box] = fd;
  const auto waiting = waiting_.extract(head.box);
  if (waiting.empty()) return true;
  for (Bytes& frame : waiting.mapped()) deliver(head.box, std::move(frame));
  return true;
}

// Returns false if the connection has ended or is not a rank's.
bool MessageRouter::read_from(int fd) {
  Connection& connection = connections_.at(fd);  // only this thread adds and removes connections
  if (newcomers_.contains({connection.limit, fd})) return read_greeting(fd, connection);
  std::array<std::uint8_t, 65536> buffer;
  const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return false;
  connection.in.feed({buffer.data(), static_cast<std::size_t>(got)});
  try {
    while (std::optional<Bytes> message = connection.in.next()) to_rank0(*std::move(message));
  } catch (const std::length_error&) {
    return false;
  }
  return true;
}

// This function and the next one are called with mutex_ locked.
void MessageRouter::deliver(const Box& box, Bytes frame) {
  const auto receiver = receivers_.find(box);
  if (receiver == receivers_.end()) {
    waiting_[box].push_back(std::move(frame));
    return;
  }
  Connection& connection = connections_.at(receiver->second);
  connection.out.push_back(std::move(frame));
  // A broken connection is dropped by the router's thread, which epoll informs too.
  if (!connection.full) flush(connection);
}

// Sends as much as the kernel accepts. Returns false if the connection is broken.
bool MessageRouter::flush(Connection& connection) const {
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

void MessageRouter::drop(int fd) {
  const std::lock_guard lock(mutex_);
  std::erase_if(receivers_, [fd](const auto& receiver) { return receiver.second == fd; });
  newcomers_.erase({connections_.at(fd).limit, fd});
  connections_.erase(fd);
}

}  // namespace cp_pool
