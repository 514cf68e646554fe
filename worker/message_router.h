// Rank 0's end of the connections of all ranks. A thread of the router receives messages to rank 0, and sends the
// messages of a box to its receiver. A message costs one write and one read, and a waiting rank is woken once.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cases/unique_fd.h"
#include "worker/rank_messages.h"
#include "worker/tcp.h"

namespace cp_pool {

// A queue of messages for one thread of a rank.
struct Box {
  enum class Of : std::uint8_t { compute, control };
  Of of = Of::compute;
  int rank = 0;

  friend auto operator<=>(const Box&, const Box&) = default;
};

// A rank's connection begins with its greeting: this, and the token of its pool. Then messages follow in both
// directions. Numbers are in this machine's byte order, because all ranks run the same binary.
struct Greeting {
  std::uint32_t magic = 0x43504d33;  // identifies a rank of cp-pool
  std::uint32_t token_bytes = 0;
  Box box;  // that the rank receives
};
Bytes greeting_of(const Box& box, std::string_view token);
Bytes frame_of(std::span<const std::uint8_t> message);  // throws std::length_error for more than 256 MiB

// Splits the bytes after a greeting into messages.
class MessageReader {
 public:
  void feed(std::span<const std::uint8_t> bytes);
  std::optional<Bytes> next();  // nullopt if no message is complete; throws std::length_error

 private:
  Bytes bytes_;
  std::size_t taken_ = 0;  // how many bytes of bytes_ have been returned in messages
};

class MessageRouter {
 public:
  // listening: a listening, non-blocking socket, which the router takes over. Until a connection has shown the token,
  // nothing behind its greeting is read; one that sends anything else, or no greeting within `patience`, is closed. The
  // first such connection is named on stderr. Throws std::system_error.
  MessageRouter(int listening, std::string_view token, std::chrono::milliseconds patience = std::chrono::seconds(10));
  MessageRouter(const MessageRouter&) = delete;
  MessageRouter& operator=(const MessageRouter&) = delete;
  ~MessageRouter();  // closes all connections

  [[nodiscard]] int port() const { return port_of(listener_.get()); }

  // Puts a message into a box. May be called from any thread, and never waits for the receiver.
  void push(const Box& box, std::span<const std::uint8_t> message);
  // Calls `take` for each message to rank 0, one at a time, on the router's thread or on that of to_rank0. A null
  // `take` stops this and returns when no call is running.
  void on_rank0(std::function<void(const Bytes&)> take);
  void to_rank0(Bytes message);  // from a thread of this process; returns when `take` has

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    UniqueFd fd;
    Clock::time_point limit;    // of its greeting
    std::string greeting = {};  // what has come of it
    MessageReader in = {};
    std::deque<Bytes> out = {};  // frames that the kernel has not accepted yet
    std::size_t sent = 0;        // bytes of the first frame that have been sent
    bool full = false;           // the kernel's buffer is full; epoll reports when it has room
  };

  void watch(int fd, std::uint32_t events, int operation) const;
  void serve();
  void serve(int fd, std::uint32_t events);
  [[nodiscard]] int patience_left() const;
  void drop_silent_connections();
  void report_stranger(int fd, const std::string& why);
  void accept_all();
  bool read_greeting(int fd, Connection& connection);
  bool read_from(int fd);
  void deliver(const Box& box, Bytes frame);
  bool flush(Connection& connection) const;
  void drop(int fd);

  std::chrono::milliseconds patience_;
  std::string greeting_;  // of every rank, but for its box
  UniqueFd listener_;
  UniqueFd epoll_;
  UniqueFd stop_;
  // Connections that have not shown the token yet, with the time at which they are closed. Used by the router's thread
  // alone.
  std::set<std::pair<Clock::time_point, int>> newcomers_;
  bool named_a_stranger_ = false;
  std::mutex mutex_;  // guards the next three members
  std::map<int, Connection> connections_;
  std::map<Box, int> receivers_;
  std::map<Box, std::vector<Bytes>> waiting_;  // frames of boxes without a receiver
  std::mutex rank0_mutex_;
  std::function<void(const Bytes&)> take_;
  std::vector<Bytes> early_;  // messages that came before take_ was set
  std::thread thread_;
};

}  // namespace cp_pool
