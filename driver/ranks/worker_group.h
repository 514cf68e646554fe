// The ranks of one pool and the pipes to rank 0. It reports facts, such as messages that were read and ranks that
// ended, and decides nothing; the pool's coroutine looks at these facts after each on_change.
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
#include <vector>

#include <asio/io_context.hpp>

#include "driver/core/events.h"
#include "driver/core/mapped.h"
#include "driver/core/rank_environment.h"
#include "driver/core/run.h"
#include "driver/os/spawn.h"
#include "driver/ranks/log_file.h"
#include "driver/ranks/pipes.h"
#include "driver/ranks/rank_facts.h"
#include "driver/ranks/stderr_buffer.h"
#include "worker/protocol/environment.h"
#include "worker/protocol/line_framer.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

class WorkerGroup {
 public:
  struct Logs {
    std::optional<std::filesystem::path> dir;  // folder of the log files: rank 0's stdout and each rank's stderr
    LogFile::OnError on_error;                 // called for each log file that cannot be written
  };

  struct Config {
    const RunConfig* run = nullptr;  // worker, environment, device and launcher; not owned, outlives the group
    int world_size = 1;
    std::string tag;  // value of CP_POOL_TAG, by which processes of the pool are found
    Logs logs = {};
    Variables variables = {};  // added to the ranks' environment
  };

  // A rank, or the launcher that started the ranks.
  struct Process {
    explicit Process(int rank, int writers = 1) : tail(rank, writers) {}
    pid_t pid = -1;                  // process ID on its host; -1: unknown
    std::optional<ExitStatus> exit;  // how it ended, if that is known
    StderrBuffer tail;
    LogFile log;
    // If it is a child of the driver: the pipe from its stderr, and the watch over its exit.
    std::shared_ptr<PipeReader> stderr_pipe;
    std::shared_ptr<asio::posix::stream_descriptor> exit_watch;
  };

  struct Rank : Process {
    using Process::Process;
    std::string host;               // empty: this host
    std::vector<int> signals_sent;  // while it ran
  };

  WorkerGroup(asio::io_context& io, Config config, std::function<void()> on_change);
  virtual ~WorkerGroup();

  // Starts the ranks. To be called on the main thread. Throws SpawnError or std::system_error; ranks that were started
  // before the error stay.
  virtual void spawn() = 0;
  virtual void stop_forking() {}

  void send(const protocol::Request& request) { send_line(protocol::encode(request)); }
  // json: any line, valid or not, without its newline.
  void send_line(std::string json) { stdin_->write(std::move(json) + '\n'); }
  void close_stdin_when_written() {
    if (stdin_) stdin_->close_when_written();
  }

  // Returns rank 0's next message, oldest first; nullopt if there is none yet.
  std::optional<Incoming> take();
  // The pipe that was rank 0's stdout, as /proc/PID/fd names it: "pipe:[123]".
  [[nodiscard]] const std::string& stdout_name() const { return stdout_name_; }

  [[nodiscard]] const std::vector<Rank>& ranks() const { return ranks_; }
  // Process IDs of the ranks, as far as they run on this host and are known.
  [[nodiscard]] std::vector<int> pids() const;
  // Children of the driver that belong to the group. Only the group may reap them.
  [[nodiscard]] std::vector<int> children();

  // Returns "; rank 1 is on node2" for each rank on another host that the text mentions without its host; empty if
  // there is none.
  [[nodiscard]] std::string locate_ranks_in(std::string_view text) const;
  // When the group has been ended: the ranks that could not be proved to be gone.
  [[nodiscard]] virtual std::vector<Leftover> unproven() const { return {}; }

  // The facts on which a PoolMachine decides. The views in them are valid until the group changes.
  [[nodiscard]] RankFacts facts() const;
  [[nodiscard]] std::vector<RankExit> exits() const;

  void begin_case(std::int64_t seq);
  void reopen_tails() {
    for (StderrBuffer* const stream : streams()) stream->reopen();
  }
  virtual std::vector<StderrTail> tails() {
    return mapped(ranks_, [](Rank& rank) { return rank.tail.tail(); });
  }
  // The last words of a rank or launcher that has ended; empty if it had none.
  virtual std::string last_words(const RankEnd& end) { return end.rank ? last_stderr_line(*end.rank) : ""; }
  std::string last_stderr_line(int rank) { return rank_at(rank).tail.last_line(); }

  // Asks every rank to write to stderr where it stands.
  virtual void ask_for_stacks() = 0;
  // Two steps that end ranks which do not end by themselves: terminate() asks them to end, kill() ends them.
  virtual void terminate() = 0;
  virtual void kill() = 0;

  // Reaps the children that have exited and closes the pipes. Until then none of their process IDs can be reused.
  virtual void reap();

 protected:
  // Watches the stderr and the exit of a child. rank, name: as in RankEnd.
  void watch(Process& child, UniqueFd stderr_end, UniqueFd pidfd, std::optional<int> rank, std::string name);
  void take_stderr(Process& process, std::string_view bytes);
  void end_stderr(Process& process);
  // Waits 1 s at most for the end of children that were killed. They still live only if an exception ends the run.
  void await_children();
  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] const RunConfig& run() const { return *config_.run; }
  [[nodiscard]] const ProcessEnvironment* process_environment() const {
    return run().process ? &*run().process : nullptr;
  }
  // Returns the variables of a rank, adding to `rank` what is the same for all ranks, whoever starts them.
  [[nodiscard]] Variables variables_of(protocol::RankEnvironment rank) const;
  Rank& add_rank();
  void open_logs();
  void watch_stdio(UniqueFd stdin_end, UniqueFd stdout_end);
  void note_end(RankEnd end);
  void changed() { on_change_(); }
  [[nodiscard]] bool stdout_closed() const { return stdout_closed_; }
  [[nodiscard]] const std::vector<RankEnd>& ends() const { return ends_; }  // in the order in which the ranks ended

  // The stderr of the ranks, and of the launcher if there is one.
  virtual std::vector<StderrBuffer*> streams() {
    return mapped(ranks_, [](Rank& rank) { return &rank.tail; });
  }
  [[nodiscard]] virtual std::vector<Process*> child_processes() = 0;
  // Adds what only this kind of group knows.
  virtual void add_to(RankFacts& facts) const = 0;
  [[nodiscard]] asio::io_context& io() const { return io_; }
  [[nodiscard]] std::vector<Rank>& own_ranks() { return ranks_; }
  [[nodiscard]] Rank& rank_at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

 private:
  static void stop_watching(const Process& child);
  void on_stdout(std::string_view bytes);

  asio::io_context& io_;
  Config config_;
  std::function<void()> on_change_;
  std::vector<Rank> ranks_;
  std::vector<RankEnd> ends_;
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

class ForkServer;

// Returns a group of ranks that are processes of the driver. Each has a stderr pipe and a process group of its own.
// fork_server: forks the ranks; nullptr: they are spawned one by one. on_forked: called for each forked rank before
// anybody may reap it. The destructor kills and reaps the ranks that are left, waiting 1 s at most.
std::unique_ptr<WorkerGroup> make_local_group(asio::io_context& io, WorkerGroup::Config config, ForkServer* fork_server,
                                              std::function<void(pid_t)> on_forked, std::function<void()> on_change);

// Returns a group of ranks that a launcher starts (launcher.h), on this host or on others. hosts: empty if the launcher
// chooses them. crowded: they have fewer slots than the pool has ranks. The destructor kills and reaps the launcher,
// waiting 1 s at most.
std::unique_ptr<WorkerGroup> make_launched_group(asio::io_context& io, WorkerGroup::Config config,
                                                 std::vector<HostShare> hosts, bool crowded,
                                                 std::function<void()> on_change);

}  // namespace cp_pool
