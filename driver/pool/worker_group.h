// The processes of one pool and the pipes to them, as facts: what has been read, who has exited. It decides nothing;
// the pool's coroutine looks at it after each on_change.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <variant>
#include <vector>

#include <asio/io_context.hpp>

#include "driver/pool/log_file.h"
#include "driver/pool/pipes.h"
#include "driver/pool/stderr_ring.h"
#include "driver/process/exit_status.h"
#include "driver/process/spawn.h"
#include "driver/surroundings.h"
#include "worker/protocol/line_framer.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

class ForkServer;

// A sentinel line of rank 0 that is not a message.
struct ProtocolBreak {
  std::string detail;
};
using Incoming = std::variant<protocol::Event, ProtocolBreak>;

class WorkerGroup {
 public:
  struct Config {
    std::vector<std::string> command;
    std::string device;
    bool share_gpus = true;
    int world_size = 1;
    std::string tag;                                             // CP_POOL_TAG
    std::optional<std::filesystem::path> log_dir;                // full stdout and stderr, a file a rank
    LogFile::OnError on_log_error;                               // for each that cannot be written
    std::vector<std::pair<std::string, std::string>> variables;  // more of the ranks' environment
    std::optional<Surroundings> surroundings;                    // of the ranks; none: those of this process
    ForkServer* fork_server = nullptr;          // that forks the ranks, instead of starting each by itself
    std::function<void(pid_t)> on_forked = {};  // for each of these, before anybody may reap it
  };

  struct Rank {
    explicit Rank(int rank) : tail(rank) {}
    pid_t pid = -1;
    std::optional<ExitStatus> exit;
    bool killed_by_driver = false;  // it died of a signal that the driver had sent it
    StderrRing tail;
    std::vector<int> signals_sent;
    std::shared_ptr<PipeReader> stderr_pipe;
    std::shared_ptr<ExitWatcher> watcher;
    LogFile log;
  };

  WorkerGroup(asio::io_context& io, Config config, std::function<void()> on_change);
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;
  ~WorkerGroup();  // kills and reaps what is left, waiting a second at most

  // Starts the ranks, on the main thread. Throws SpawnError or std::system_error; ranks started until then stay. With a
  // fork server it returns at once, and forking() tells while ranks are still being forked.
  void spawn();
  [[nodiscard]] bool forking() const { return forking_; }
  // No further rank is forked. One may be on its way.
  void stop_forking() { to_fork_.clear(); }
  // The fork server was lost before every rank was forked: those that were are there.
  [[nodiscard]] bool fork_failed() const { return fork_failed_; }

  void send(const protocol::Request& request);
  void send_line(std::string json);  // one that need be no request, without its newline
  void close_stdin_when_written();
  [[nodiscard]] bool stdin_broken() const { return stdin_ && stdin_->broken(); }
  [[nodiscard]] bool stdin_pending() const { return stdin_ && stdin_->pending(); }

  // What rank 0 said, oldest first; nullopt: nothing more so far.
  std::optional<Incoming> take();
  [[nodiscard]] bool stdout_closed() const { return stdout_closed_; }
  // The pipe that was rank 0's stdout, as /proc/PID/fd names it: "pipe:[123]".
  [[nodiscard]] const std::string& stdout_name() const { return stdout_name_; }
  // The last line of rank 0's stdout that is no message; empty if there was none.
  [[nodiscard]] const std::string& last_chatter() const { return last_chatter_; }
  // The last of these during the case that has the sentinel all the same, within it or without its blank; empty if
  // there was none.
  [[nodiscard]] const std::string& misplaced_sentinel() const { return misplaced_sentinel_; }

  [[nodiscard]] const std::vector<Rank>& ranks() const { return ranks_; }
  [[nodiscard]] std::vector<int> pids() const;
  [[nodiscard]] bool any_exited() const { return !exit_order_.empty(); }
  [[nodiscard]] bool all_exited() const { return exit_order_.size() == ranks_.size(); }
  [[nodiscard]] const std::vector<int>& exit_order() const { return exit_order_; }  // ranks, first to exit first
  // Nothing more can come from those that have exited: their pipes are at their end.
  [[nodiscard]] bool drained() const;

  void begin_case(std::int64_t seq);
  void reopen_tails();  // StderrRing::reopen of every rank
  [[nodiscard]] bool tails_complete() const;
  std::vector<StderrTail> tails();
  std::string last_stderr_line(int rank) { return ranks_[static_cast<std::size_t>(rank)].tail.last_line(); }

  void signal_ranks(int signal);   // the processes themselves
  void signal_groups(int signal);  // their process groups; those of ranks that have exited too

  // Takes away the ranks that have exited, and closes the pipes. Until then no pid of theirs can be reused.
  void reap();

 private:
  // A rank that is about to be started: its environment and the pipes to it.
  struct Start {
    std::vector<std::pair<std::string, std::string>> variables;
    Pipe in;
    Pipe out;
    Pipe err;
    UniqueFd master;  // of rank 0: the socket that it is to listen on
  };
  [[nodiscard]] Start prepare(int index, ListeningSocket& master) const;
  Rank& add_rank();
  void spawn_rank(Start start);
  void fork_next();
  void take_forked(Start& start, pid_t pid);
  void connect(Rank& rank, Start& start, UniqueFd pidfd);
  void watch(Rank& rank, UniqueFd stderr_end, UniqueFd pidfd);
  void watch_stdio(UniqueFd stdin_end, UniqueFd stdout_end);
  void on_stdout(std::string_view bytes);
  void on_line(const protocol::Line& line);
  void on_exit(Rank& rank);
  void open_logs();

  asio::io_context& io_;
  Config config_;
  std::function<void()> on_change_;
  std::vector<Rank> ranks_;
  std::vector<int> exit_order_;
  std::shared_ptr<PipeWriter> stdin_;
  std::shared_ptr<PipeReader> stdout_;
  bool stdout_closed_ = true;
  protocol::LineFramer framer_{protocol::LineFramer::Stream::responses};
  std::deque<Incoming> inbox_;
  std::string stdout_name_;
  std::string last_chatter_;
  std::string misplaced_sentinel_;
  LogFile stdout_log_;
  std::deque<Start> to_fork_;  // by rank
  bool forking_ = false;
  bool fork_failed_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // answers of the fork server look whether it is gone
};

}  // namespace cp_pool
