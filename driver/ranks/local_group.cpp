// Ranks that are processes of the driver: spawned one by one, or forked by a fork server.
#include <algorithm>
#include <csignal>
#include <deque>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "driver/ranks/fork_server.h"
#include "driver/ranks/worker_group.h"
#include "worker/protocol/environment.h"

namespace cp_pool {

namespace {

class LocalGroup : public WorkerGroup {
 public:
  LocalGroup(asio::io_context& io, Config config, ForkServer* fork_server, std::function<void(pid_t)> on_forked,
             std::function<void()> on_change)
      : WorkerGroup(io, std::move(config), std::move(on_change)),
        fork_server_(fork_server),
        on_forked_(std::move(on_forked)) {}

  ~LocalGroup() override {
    signal_groups(SIGKILL);
    await_children();
  }

  // With a fork server this returns at once, while ranks are still being forked.
  void spawn() override {
    open_logs();
    ListeningSocket master = listen_on_loopback();
    if (fork_server_ == nullptr) {
      for (int rank = 0; rank < config().world_size; ++rank) {
        Start start = prepare(rank, master);
        SpawnedProcess process = cp_pool::spawn(request_of(start));
        connect(process.pid, start, std::move(process.pidfd));
      }
      return;
    }
    for (int rank = 0; rank < config().world_size; ++rank) to_fork_.push_back(prepare(rank, master));
    forking_ = true;
    fork_next();
  }

  // Forks no more ranks. The rank that was ordered last may still come.
  void stop_forking() override { to_fork_.clear(); }

  // Signals the ranks themselves, not the processes that they have started.
  void ask_for_stacks() override {
    for (Rank& rank : own_ranks()) {
      if (rank.pid <= 0 || rank.exit) continue;
      rank.signals_sent.push_back(SIGUSR2);
      ::kill(rank.pid, SIGUSR2);
    }
  }

  void terminate() override {
    signal_groups(SIGTERM);
    signal_groups(SIGCONT);  // a stopped process acts on SIGTERM only when it is continued
  }

  void kill() override { signal_groups(SIGKILL); }

 protected:
  [[nodiscard]] std::vector<Process*> child_processes() override {
    return mapped(own_ranks(), [](Rank& rank) -> Process* { return &rank; });
  }

  void add_to(RankFacts& facts) const override {
    facts.forking = forking_;
    facts.fork_failed = fork_failed_;
    facts.rank0_ended = !ranks().empty() && ranks().front().exit.has_value();
    facts.all_ended = ends().size() == ranks().size();
    facts.drained = (stdout_closed() || !facts.rank0_ended) &&
                    std::ranges::all_of(ranks(), [](const Rank& r) { return !r.exit || r.tail.closed(); });
  }

 private:
  // A rank that is about to be started: its environment and the pipes to it.
  struct Start {
    Variables variables;
    Pipe in;
    Pipe out;
    Pipe err;
    UniqueFd master;  // only for rank 0: the socket that it listens on for the other ranks
  };

  [[nodiscard]] Start prepare(int index, ListeningSocket& master) const {
    const bool first = index == 0;
    protocol::RankEnvironment of_rank;
    of_rank.rank = index;
    of_rank.local_rank = index;
    of_rank.master_port = master.port;
    of_rank.token = token_;
    if (first) of_rank.master_fd = master.fd.get();

    Start out;
    out.variables = variables_of(of_rank);
    if (first) {
      out.in = make_pipe();
      out.out = make_pipe();
      out.master = std::move(master.fd);
    }
    out.err = make_pipe();
    return out;
  }

  [[nodiscard]] SpawnRequest request_of(const Start& start) const {
    return {.argv = run().worker_command,
            .env = start.variables,
            .stdin_fd = start.in.read.get(),
            .stdout_fd = start.out.write.get(),
            .stderr_fd = start.err.write.get(),
            .inherited_fd = start.master.get(),
            .process = process_environment()};
  }

  void fork_next() {
    if (to_fork_.empty()) {
      forking_ = false;
      changed();
      return;
    }
    const auto start = std::make_shared<Start>(std::move(to_fork_.front()));
    to_fork_.pop_front();
    const auto done = [this, alive = std::weak_ptr<bool>(alive_), start](std::optional<pid_t> pid) {
      if (alive.expired()) {
        if (pid) ::kill(-*pid, SIGKILL);
        return;
      }
      if (pid) return take_forked(*start, *pid);
      fork_failed_ = true;
      stop_forking();
      fork_next();
    };
    fork_server_->fork(request_of(*start), done);
  }

  void take_forked(Start& start, pid_t pid) {
    UniqueFd pidfd{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))};
    if (pidfd) {
      on_forked_(pid);
      connect(pid, start, std::move(pidfd));
    } else {  // no file descriptor is left, so a spawned rank would not get one either
      ::kill(-pid, SIGKILL);
      fork_failed_ = true;
      stop_forking();
    }
    fork_next();
  }

  void connect(pid_t pid, Start& start, UniqueFd pidfd) {
    const int index = static_cast<int>(ranks().size());
    Rank& rank = add_rank();
    rank.pid = pid;
    watch(rank, std::move(start.err.read), std::move(pidfd), index, fmt::format("rank {}", index));
    if (start.in.write) watch_stdio(std::move(start.in.write), std::move(start.out.read));
  }

  // Signals every rank's process group, even if the rank has exited.
  void signal_groups(int signal) {
    for (Rank& rank : own_ranks()) {
      if (rank.pid <= 0) continue;
      if (!rank.exit) rank.signals_sent.push_back(signal);
      ::kill(-rank.pid, signal);
    }
  }

  ForkServer* fork_server_;
  std::function<void(pid_t)> on_forked_;
  std::string token_ = protocol::random_token();  // of the pool
  std::deque<Start> to_fork_;                     // by rank
  bool forking_ = false;
  bool fork_failed_ = false;
  // Expired for answers of the fork server after this object is gone.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace

std::unique_ptr<WorkerGroup> make_local_group(asio::io_context& io, WorkerGroup::Config config, ForkServer* fork_server,
                                              std::function<void(pid_t)> on_forked, std::function<void()> on_change) {
  return std::make_unique<LocalGroup>(io, std::move(config), fork_server, std::move(on_forked), std::move(on_change));
}

}  // namespace cp_pool
