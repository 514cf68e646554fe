// The process that an adapter's ranks are forked from. It has already imported Python, torch and the adapter, so a rank
// starts in milliseconds instead of seconds. python/cp_pool/server.py is the other side.
//
// Driver and server talk over a pair of sockets, one message per datagram. The server first says that it is ready (and
// why each rank will import the adapter by itself, if so), why ranks have to be started one by one instead, or why no
// rank can start at all. Its stdin is a file of cases, below which it has then written which of them the adapter would
// skip; or, if each rank imports the adapter, it may say later that they are there. It answers each order with the pid
// of a rank. By then the rank is a child of this process, because the server forks twice and this process is a child
// subreaper. Only one order is sent at a time. If the adapter's files have changed, the server first says that it
// imports them anew.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include <asio/posix/stream_descriptor.hpp>
#include <nlohmann/json.hpp>

#include "cases/unique_fd.h"
#include "driver/core/clock.h"
#include "driver/core/events.h"
#include "driver/core/run.h"
#include "driver/os/process_tree.h"
#include "driver/os/wakeup.h"
#include "driver/ranks/pipes.h"
#include "driver/ranks/pool_host.h"
#include "driver/ranks/rank_facts.h"

namespace cp_pool {

class ForkServer {
 public:
  struct Config {
    // Its command, to which options are appended that name the socket and this process; fork_patience,
    // environment, device, and the start_timeout for the imports, of which it uses 90 %. Not owned, outlives
    // the server.
    const RunConfig* run = nullptr;
    // Returns the cases about which the adapter is asked, each a line of JSON. May be empty.
    std::function<std::vector<std::string>()> cases;
    // Gets the adapter's reason for each of these cases, empty for one that it would run, before on_change is called or
    // while ranks start.
    std::function<void(const std::vector<std::string>& reasons)> skips;
    std::function<void(const ForkServerTold&)> tell;
    std::function<void()> on_change;  // called when it has become ready or useless
  };
  // While the server lives, it is one of the host's children (PoolHost::ranks).
  ForkServer(PoolHost& host, Config config);
  ~ForkServer() { close(); }

  // Starts the server at the first call. To be called on the main thread.
  void start();
  using State = ServerFacts::State;
  [[nodiscard]] bool is(State state) const { return facts_.state == state; }
  [[nodiscard]] const ServerFacts& facts() const { return facts_; }

  // Forks a rank as cp_pool::spawn() would start it, in the working directory and environment of the server. Its
  // descriptors must stay open until `done` is called: with the pid of the rank, a child in a process group of its own;
  // or with nullopt if the server cannot be used any more.
  using Done = std::function<void(std::optional<pid_t>)>;
  void fork(SpawnRequest order, Done done);

  // Ends the server. No function is called any more.
  void close();

 private:
  struct Pending {
    SpawnRequest order;
    Done done;
  };

  void spawn();
  void listen();
  void read_messages();
  void take(const std::string& text);
  void accept_pid(const nlohmann::json& message);
  void send_next();
  void limit_answer(std::chrono::milliseconds limit, const std::string& no_rank_starts);
  void become_useless(const std::string& reason);
  void refuse_ranks(const std::string& reason);
  void write_cases();
  void report_skips();
  void end_process();
  [[nodiscard]] std::string describe_end() const;

  PoolHost& host_;
  Config config_;
  ServerFacts facts_{.state = State::unused};
  std::string tag_;          // CP_POOL_TAG of the server, and of a forked rank until it sets its pool's tag
  PoolProcesses processes_;  // processes with that tag
  pid_t pid_ = -1;
  Clock::time_point started_;
  asio::posix::stream_descriptor socket_;
  Alarm answer_timer_;
  std::shared_ptr<PipeReader> stderr_;
  UniqueFd cases_;                 // its stdin; none: there are no cases to ask about
  std::size_t asked_ = 0;          // number of these cases
  std::size_t answers_begin_ = 0;  // where its answers begin
  std::deque<Pending> queue_;      // the first order has been sent if this is in PoolHost::forking
  // Expired for handlers that run after this object is gone.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cp_pool
