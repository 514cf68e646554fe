// The ranks of one pool, and what is said to rank 0, as facts: what has been read, who has ended. It decides nothing;
// the pool's coroutine looks at it after each on_change. Ranks that are processes of the driver are a LocalGroup
// (local_group.h), ranks that a launcher has started a LaunchedGroup (launched_group.h).
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

#include "driver/events.h"
#include "driver/pool/log_file.h"
#include "driver/pool/pipes.h"
#include "driver/pool/stderr_ring.h"
#include "driver/process/exit_status.h"
#include "driver/surroundings.h"
#include "worker/protocol/line_framer.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

// A sentinel line of rank 0 that is not a message.
struct ProtocolBreak {
  std::string detail;
};
using Incoming = std::variant<protocol::Event, ProtocolBreak>;

class WorkerGroup {
 public:
  struct Logs {
    std::optional<std::filesystem::path> dir;  // full stdout and stderr, a file a rank
    LogFile::OnError on_error;                 // for each that cannot be written
  };

  // What every kind of group is started with.
  struct Config {
    std::vector<std::string> command;  // the worker's
    std::string device;
    bool share_gpus = true;
    int world_size = 1;
    std::string tag;  // CP_POOL_TAG
    Logs logs;
    std::vector<std::pair<std::string, std::string>> variables;  // more of the ranks' environment
    std::optional<Surroundings> surroundings;                    // of the ranks; none: those of this process
  };

  struct Rank {
    explicit Rank(int rank) : tail(rank) {}
    pid_t pid = -1;                  // on its host; -1: not known
    std::string host;                // empty: this one
    std::optional<ExitStatus> exit;  // how it ended, if that is known
    bool killed_by_driver = false;   // it died of a signal that the driver had sent it
    StderrRing tail;
    LogFile log;
  };

  // Of a rank, or of the launcher that has started the ranks.
  struct End {
    std::optional<int> rank;           // nullopt: the launcher
    std::string who;                   // "rank 1", "rank 1 on node2", "mpirun"
    std::string how;                   // "exit 3"
    std::optional<ExitStatus> status;  // if it is known
  };

  WorkerGroup(asio::io_context& io, int world_size, Logs logs, std::function<void()> on_change);
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;
  virtual ~WorkerGroup();

  // Starts the ranks, on the main thread. Throws SpawnError or std::system_error; what was started until then stays.
  virtual void spawn() = 0;
  // Ranks are still being started, one after another.
  [[nodiscard]] virtual bool forking() const { return false; }
  virtual void stop_forking() {}
  // Ranks cannot be forked any more: those that were are there.
  [[nodiscard]] virtual bool fork_failed() const { return false; }

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
  // Of the ranks, as far as they are processes of this host and known.
  [[nodiscard]] std::vector<int> pids() const;
  // Processes that the driver has started for the group, and that it alone may reap.
  [[nodiscard]] virtual std::vector<int> children() const = 0;
  // First to end first.
  [[nodiscard]] const std::vector<End>& ends() const { return ends_; }
  [[nodiscard]] bool any_exited() const { return !ends_.empty(); }
  // No rank is left, and no launcher, as far as the driver can see.
  [[nodiscard]] virtual bool all_exited() const = 0;
  [[nodiscard]] virtual bool rank0_has_ended() const = 0;
  // Nothing more can come from those that have ended: their pipes are at their end.
  [[nodiscard]] virtual bool drained() const = 0;

  // The ranks of which nothing has been heard for too long, and for how long, as a text: a host that is lost, or cut
  // off. Empty: none.
  [[nodiscard]] virtual std::string silent_ranks() const { return ""; }
  // Once a rank or the launcher has ended: what is known of the ranks that have not ended for the driver, where that
  // may explain it. "nothing has been heard of rank 1 on node2 for 2.3 s". Empty: nothing.
  [[nodiscard]] virtual std::string ranks_left() const { return ""; }
  // "; rank 1 is on node2" for each rank on another host that the text names without it; empty: for none.
  [[nodiscard]] std::string hosts_of_ranks_in(std::string_view text) const;
  // At the end: ranks that cannot be proved to be gone.
  [[nodiscard]] virtual std::vector<Leftover> unproven() const { return {}; }

  void begin_case(std::int64_t seq);
  virtual void reopen_tails();  // StderrRing::reopen of every rank
  [[nodiscard]] virtual bool tails_complete() const;
  virtual std::vector<StderrTail> tails();
  // Of one that has ended; empty: it had none.
  virtual std::string last_words(const End& end);
  std::string last_stderr_line(int rank) { return ranks_[static_cast<std::size_t>(rank)].tail.last_line(); }

  // Every rank is asked to write to stderr where it stands.
  virtual void ask_for_stacks() = 0;
  // A pause, as far as the group can be stopped.
  virtual void stop() = 0;
  virtual void go_on() = 0;
  // Whether kill() and the end of the driver's processes are the end of the ranks: else terminate() comes first.
  [[nodiscard]] virtual bool dies_with_its_processes() const { return true; }
  // The steps of an end that is not the worker's own: asked to end, and ended.
  virtual void terminate() = 0;
  virtual void kill() = 0;

  // Takes away the children that have exited, and closes the pipes. Until then no pid of theirs can be reused.
  virtual void reap();

 protected:
  Rank& add_rank();
  void open_logs();
  void watch_stdio(UniqueFd stdin_end, UniqueFd stdout_end);
  void note_end(End end);
  void changed() { on_change_(); }

  virtual void begin_tails(std::int64_t seq);
  [[nodiscard]] asio::io_context& io() const { return io_; }
  [[nodiscard]] const Logs& logs() const { return logs_; }
  [[nodiscard]] std::vector<Rank>& own_ranks() { return ranks_; }

 private:
  void on_stdout(std::string_view bytes);
  void on_line(const protocol::Line& line);

  asio::io_context& io_;
  Logs logs_;
  std::function<void()> on_change_;
  std::vector<Rank> ranks_;
  std::vector<End> ends_;
  std::shared_ptr<PipeWriter> stdin_;
  std::shared_ptr<PipeReader> stdout_;
  bool stdout_closed_ = true;
  protocol::LineFramer framer_{protocol::LineFramer::Stream::responses};
  std::deque<Incoming> inbox_;
  std::string stdout_name_;
  std::string last_chatter_;
  std::string misplaced_sentinel_;
  LogFile stdout_log_;
};

}  // namespace cp_pool
