// The process that the ranks of an adapter are forked from: it has imported Python, torch and what else they need, so
// that a rank starts in milliseconds instead of seconds. python/cp_pool/server.py is its other side.
//
// The two speak over a pair of sockets, a message a datagram. The server says once that it is ready, or why it is of no
// use. Then each order is answered by the pid of a rank, which by then is a child of this process: the server forks
// twice, and this process is a child subreaper. One order is under way at a time.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <nlohmann/json.hpp>

#include "driver/clock.h"
#include "driver/events.h"
#include "driver/pool/pipes.h"
#include "driver/pool/pool_host.h"
#include "driver/pool/wakeup.h"
#include "driver/process/process_tree.h"
#include "driver/process/unique_fd.h"
#include "driver/surroundings.h"

namespace cp_pool {

class ForkServer {
 public:
  struct Config {
    std::vector<std::string> command;           // argv; how it reaches this process is added
    std::optional<Surroundings> surroundings;   // none: those of this process
    std::chrono::milliseconds patience{10000};  // for the answer to an order
    std::function<void(const ForkServerTold&)> tell;
    std::function<void()> on_change;  // it is ready, or of no use
  };
  // The server is one of the host's children while it lives.
  ForkServer(PoolHost& host, Config config);
  ForkServer(const ForkServer&) = delete;
  ForkServer& operator=(const ForkServer&) = delete;
  ~ForkServer();

  // The first time; on the main thread.
  void start();
  [[nodiscard]] bool starting() const { return state_ == State::starting; }
  [[nodiscard]] bool ready() const { return state_ == State::ready; }
  // Kills it and tells why. Orders that are not answered end without a rank.
  void give_up(const std::string& reason);

  // What a rank is started with, as SpawnRequest.
  struct Order {
    std::vector<std::string> argv;
    std::vector<std::pair<std::string, std::string>> env;
    UniqueFd in;  // none: /dev/null
    UniqueFd out;
    UniqueFd err;
    UniqueFd master;  // CP_POOL_MASTER_FD names it in the rank
  };
  // done: called with the pid, of a child in a process group of its own; or with none: the server is of no use any
  // more.
  using Done = std::function<void(std::optional<pid_t>)>;
  void fork(Order order, Done done);
  // A rank may have been born whose pid is not known yet: children must not be reaped.
  [[nodiscard]] bool busy() const { return sent_; }

  // Ends it. Nothing more is called.
  void close();

 private:
  enum class State { unused, starting, ready, useless };
  struct Pending {
    Order order;
    Done done;
  };

  void spawn();
  void listen();
  void take_messages();
  void take(const std::string& text);
  void take_pid(const nlohmann::json& message);
  void send_next();
  void become_useless(const std::string& reason);
  void end_process();
  [[nodiscard]] std::string how_it_ended() const;

  PoolHost& host_;
  Config config_;
  State state_ = State::unused;
  std::string tag_;          // CP_POOL_TAG of the server, and of a rank that has not taken its pool's yet
  PoolProcesses processes_;  // of that tag
  pid_t pid_ = -1;
  Clock::time_point started_;
  asio::posix::stream_descriptor socket_;
  Timer answer_timer_;
  std::shared_ptr<PipeReader> stderr_;
  std::string last_words_;
  std::deque<Pending> queue_;
  bool sent_ = false;                                           // the first of the queue
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // handlers look whether it is gone
};

}  // namespace cp_pool
