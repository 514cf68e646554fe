// The driver's end of the lifelines of one launched pool (worker/protocol/lifeline_messages.h). Through lifelines the
// driver observes and controls ranks that are not its children.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>

#include "driver/core/clock.h"
#include "driver/os/wakeup.h"
#include "worker/protocol/lifeline_messages.h"

namespace cp_pool {

// Writes orders to the ranks' connections, and sends each a beat once per beat_every from a thread of its own. The
// driver's main thread may be busy, writing to a terminal that accepts nothing or looking up names of frames, for
// longer than ranks tolerate silence. The thread takes no lock but the object's mutex, so that this process may fork
// beside it (driver/os/helper_process.h).
class OrderSender {
 public:
  explicit OrderSender(std::chrono::milliseconds beat_every);

  // fd: a non-blocking socket, not owned. It must stay open until remove() has returned.
  void add(int fd);
  void remove(int fd);
  // Sends a line, which is shorter than any socket buffer. A socket that does not accept it at once is shut down, so
  // that its reader sees the end.
  void send(int fd, std::string_view line);

 private:
  void beat(const std::stop_token& stop);
  static void write(int fd, std::string_view line);

  std::chrono::milliseconds beat_every_;
  std::string line_;  // of a beat
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::vector<int> fds_;
  std::jthread thread_;
};

class DriverSocket {
 public:
  struct Config {
    int world_size = 1;
    std::chrono::milliseconds silence{5000};     // time without a beat after which a rank counts as silent
    std::chrono::milliseconds patience{10000};   // time in which a new connection must send its Joined
    std::chrono::milliseconds beat_every{1000};  // interval of this server's beats
  };

  // All are called from the io_context. None may destroy the server.
  struct Functions {
    std::function<void(int rank, const lifeline::Joined&)> on_joined = [](int, const lifeline::Joined&) {};
    // The rank has been silent for Config::silence. Called once, and again only after on_heard_again. Time in which the
    // driver is paused does not count.
    std::function<void(int rank)> on_silent = [](int) {};
    // The rank has been silent for twice that time. Called again and again until it is heard of.
    std::function<void(int rank)> on_long_silence = [](int) {};
    std::function<void(int rank)> on_heard_again = [](int) {};
    // The process has ended or can no longer be reached. Called once, after the last on_joined and on_silent of the
    // rank.
    std::function<void(int rank, const std::string& why)> on_closed = [](int, const std::string&) {};
    std::function<void(int rank, std::string_view bytes)> on_stderr = [](int, std::string_view) {};
    // The stream of the rank's stderr has ended. The rank may still run, and may never have had a stream: only
    // on_closed says that the rank is gone.
    std::function<void(int rank)> on_stderr_end = [](int) {};
  };

  // The known state of a rank.
  struct Rank {
    std::optional<lifeline::Joined> joined;  // what it has said first, without the token; none: it has not connected
    bool connected = false;
    bool closed = false;  // its connection has ended, and it cannot connect again
    bool silent = false;
    Clock::time_point heard = {};  // time of the last message
    std::optional<int> ending;     // exit code that it has announced
  };

  // Starts to listen at a port of all addresses of this host. Throws std::system_error.
  DriverSocket(asio::io_context& io, Config config, Functions functions);
  ~DriverSocket();  // closes all connections, whereupon the ranks end themselves

  // The endpoints that it listens on, those of the loopback interface last.
  [[nodiscard]] std::vector<lifeline::Endpoint> endpoints() const;
  [[nodiscard]] const std::string& token() const { return token_; }
  // The variables CP_POOL_LIFELINE and CP_POOL_LIFELINE_TOKEN for the ranks.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> variables() const {
    return {{lifeline::kEnvAddresses, lifeline::join_endpoints(endpoints())}, {lifeline::kEnvToken, token_}};
  }

  [[nodiscard]] const std::vector<Rank>& ranks() const { return ranks_; }
  // How long a connected rank has been silent. Time in which the driver was too busy to read does not count.
  [[nodiscard]] Clock::duration silence_of(int rank) const {
    return Clock::now() - ranks_[static_cast<std::size_t>(rank)].heard;
  }

  // Orders to connected ranks. They do not wait for the effect.
  void show_stack(int rank) { send_to(rank, lifeline::ShowStack{}); }
  void end_all();

 private:
  struct Connection;
  using ConnectionRef = std::shared_ptr<Connection>;  // pending operations keep a connection alive

  void listen();
  void accept();
  void take(asio::ip::tcp::socket socket);
  void read(const ConnectionRef& connection);
  // Handle received bytes. Return false if the connection was closed.
  bool take_bytes(const ConnectionRef& connection, std::string_view bytes);
  bool take_joined(const ConnectionRef& connection, const lifeline::Joined& joined);
  void take_event(const Connection& connection, const lifeline::Event& event);
  void drop(const ConnectionRef& connection, const std::string& why);
  void close(Connection& connection);
  void watch_silence();
  void send(Connection& connection, const lifeline::Order& order);
  void send_to(int rank, const lifeline::Order& order);

  asio::io_context& io_;
  Config config_;
  Functions functions_;
  std::string token_;
  asio::ip::tcp::acceptor acceptor_;
  Alarm accept_again_;
  std::set<ConnectionRef> connections_;
  std::vector<Rank> ranks_;
  std::optional<lifeline::Rendezvous> rendezvous_;
  Alarm watch_timer_;
  Clock::time_point watched_;
  OrderSender sender_;
  // Expired for handlers that run after this object is gone.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cp_pool
