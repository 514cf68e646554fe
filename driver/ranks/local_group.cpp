#include "driver/ranks/local_group.h"

#include <algorithm>
#include <chrono>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "driver/ranks/fork_server.h"

namespace cp_pool {

LocalGroup::LocalGroup(asio::io_context& io, Config config, std::function<void()> on_change)
    : WorkerGroup(io, config, std::move(on_change)), config_(std::move(config)) {}

LocalGroup::~LocalGroup() {
  signal_groups(SIGKILL);
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (const Rank& rank : ranks()) {
    if (rank.pid > 0) reap_until(give_up, rank.pid);  // it still lives only if an exception ends the run
    rank.watch.close();
  }
}

void LocalGroup::spawn() {
  open_logs();
  ListeningSocket master = listen_on_loopback();
  if (config_.fork_server == nullptr) {
    for (int rank = 0; rank < config_.world_size; ++rank) spawn_rank(prepare(rank, master));
    return;
  }
  for (int rank = 0; rank < config_.world_size; ++rank) to_fork_.push_back(prepare(rank, master));
  forking_ = true;
  fork_next();
}

LocalGroup::Start LocalGroup::prepare(int index, ListeningSocket& master) const {
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

void LocalGroup::spawn_rank(Start start) {
  SpawnedProcess process = cp_pool::spawn({.argv = run().worker_command,
                                           .env = start.variables,
                                           .stdin_fd = start.in.read.get(),
                                           .stdout_fd = start.out.write.get(),
                                           .stderr_fd = start.err.write.get(),
                                           .inherited_fd = start.master.get(),
                                           .process = process_environment()});
  connect(process.pid, start, std::move(process.pidfd));
}

void LocalGroup::fork_next() {
  if (to_fork_.empty()) {
    forking_ = false;
    changed();
    return;
  }
  const auto start = std::make_shared<Start>(std::move(to_fork_.front()));
  to_fork_.pop_front();
  ForkServer::Order order{.argv = run().worker_command,
                          .env = start->variables,
                          .in = std::move(start->in.read),
                          .out = std::move(start->out.write),
                          .err = std::move(start->err.write),
                          .master = std::move(start->master)};
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
  config_.fork_server->fork(std::move(order), done);
}

void LocalGroup::take_forked(Start& start, pid_t pid) {
  UniqueFd pidfd{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))};
  if (pidfd) {
    config_.on_forked(pid);
    connect(pid, start, std::move(pidfd));
  } else {  // no file descriptor is left, so a spawned rank would not get one either
    ::kill(-pid, SIGKILL);
    fork_failed_ = true;
    stop_forking();
  }
  fork_next();
}

void LocalGroup::connect(pid_t pid, Start& start, UniqueFd pidfd) {
  Rank& rank = add_rank();
  rank.pid = pid;
  rank.watch =
      watch(std::move(start.err.read), std::move(pidfd), rank.tail, rank.log, [this, &rank] { on_exit(rank); });
  if (start.in.write) watch_stdio(std::move(start.in.write), std::move(start.out.read));
}

void LocalGroup::on_exit(Rank& rank) {
  const auto index = static_cast<int>(&rank - ranks().data());
  rank.exit = peek_exit(rank.pid);
  if (!rank.exit) rank.exit = ExitStatus{false, -1};  // somebody else has reaped it, so its status is lost
  note_end({index, fmt::format("rank {}", index), describe(*rank.exit), rank.exit});
}

void LocalGroup::add_to(RankFacts& facts) const {
  facts.forking = forking_;
  facts.fork_failed = fork_failed_;
  facts.rank0_ended = !ranks().empty() && ranks().front().exit.has_value();
  facts.all_ended = ends().size() == ranks().size();
  facts.drained = (stdout_closed() || !facts.rank0_ended) &&
                  std::ranges::all_of(ranks(), [](const Rank& r) { return !r.exit || r.tail.closed(); });
}

void LocalGroup::signal_groups(int signal) {
  for (Rank& rank : own_ranks()) {
    if (rank.pid <= 0) continue;
    if (!rank.exit) rank.signals_sent.push_back(signal);
    ::kill(-rank.pid, signal);
  }
}

// Signals the ranks themselves, not the processes that they have started.
void LocalGroup::ask_for_stacks() {
  for (Rank& rank : own_ranks()) {
    if (rank.pid <= 0 || rank.exit) continue;
    rank.signals_sent.push_back(SIGUSR2);
    ::kill(rank.pid, SIGUSR2);
  }
}

void LocalGroup::terminate() {
  signal_groups(SIGTERM);
  signal_groups(SIGCONT);  // a stopped process acts on SIGTERM only when it is continued
}

void LocalGroup::reap() {
  for (Rank& rank : own_ranks()) {
    rank.watch.close();
    if (rank.pid > 0 && reap_if_exited(rank.pid)) rank.pid = -1;
  }
  WorkerGroup::reap();
}

}  // namespace cp_pool
