#include "driver/pool/worker_group.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <sys/syscall.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "driver/pool/fork_server.h"
#include "driver/pool/rank_variables.h"
#include "worker/protocol/environment.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

std::string excerpt(std::string_view text) {
  return protocol::cut_text(protocol::clean_text(text.substr(0, 256)), 200);
}

}  // namespace

WorkerGroup::WorkerGroup(asio::io_context& io, Config config, std::function<void()> on_change)
    : io_(io), config_(std::move(config)), on_change_(std::move(on_change)) {
  ranks_.reserve(static_cast<std::size_t>(config_.world_size));
}

WorkerGroup::~WorkerGroup() {
  signal_groups(SIGKILL);
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (Rank& rank : ranks_) {
    // Reached with living ranks only when the run ends by an exception.
    while (rank.pid > 0 && !reap_if_exited(rank.pid) && std::chrono::steady_clock::now() < give_up) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (rank.stderr_pipe) rank.stderr_pipe->close();
    if (rank.watcher) rank.watcher->close();
  }
  if (stdin_) stdin_->close();
  if (stdout_) stdout_->close();
}

void WorkerGroup::spawn() {
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

void WorkerGroup::open_logs() {
  if (!config_.log_dir) return;
  std::error_code error;
  std::filesystem::create_directories(*config_.log_dir, error);
  if (error) {
    config_.on_log_error(fmt::format("cannot write {}: {}", config_.log_dir->string(), error.message()));
    config_.log_dir.reset();
    return;
  }
  stdout_log_ = {*config_.log_dir / "rank0.stdout.log", config_.on_log_error};
}

WorkerGroup::Start WorkerGroup::prepare(int index, ListeningSocket& master) const {
  const bool first = index == 0;
  protocol::RankEnvironment environment;
  environment.rank = index;
  environment.world_size = config_.world_size;
  environment.local_rank = index;
  environment.master_port = master.port;
  environment.tag = config_.tag;
  environment.device = config_.device;
  environment.share_gpus = config_.share_gpus;
  if (first) environment.master_fd = master.fd.get();

  Start out;
  out.variables = protocol::to_variables(environment);
  add_wait_policy(out.variables, config_.surroundings ? &*config_.surroundings : nullptr);
  out.variables.insert(out.variables.end(), config_.variables.begin(), config_.variables.end());
  if (first) {
    out.in = make_pipe();
    out.out = make_pipe();
    out.master = std::move(master.fd);
  }
  out.err = make_pipe();
  return out;
}

WorkerGroup::Rank& WorkerGroup::add_rank() {
  const int index = static_cast<int>(ranks_.size());
  Rank& rank = ranks_.emplace_back(index);
  if (config_.log_dir) {
    rank.log = {*config_.log_dir / fmt::format("rank{}.stderr.log", index), config_.on_log_error};
  }
  return rank;
}

void WorkerGroup::spawn_rank(Start start) {
  SpawnedProcess process = cp_pool::spawn({.argv = config_.command,
                                           .env = start.variables,
                                           .stdin_fd = start.in.read.get(),
                                           .stdout_fd = start.out.write.get(),
                                           .stderr_fd = start.err.write.get(),
                                           .inherited_fd = start.master.get(),
                                           .surroundings = config_.surroundings ? &*config_.surroundings : nullptr});
  Rank& rank = add_rank();
  rank.pid = process.pid;
  connect(rank, start, std::move(process.pidfd));
}

void WorkerGroup::fork_next() {
  if (to_fork_.empty()) {
    forking_ = false;
    on_change_();
    return;
  }
  const auto start = std::make_shared<Start>(std::move(to_fork_.front()));
  to_fork_.pop_front();
  ForkServer::Order order{.argv = config_.command,
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

void WorkerGroup::take_forked(Start& start, pid_t pid) {
  UniqueFd pidfd{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))};
  if (pidfd) {
    config_.on_forked(pid);
    Rank& rank = add_rank();
    rank.pid = pid;
    connect(rank, start, std::move(pidfd));
  } else {  // no descriptor is left, and then none for a rank that is started by itself
    ::kill(-pid, SIGKILL);
    fork_failed_ = true;
    stop_forking();
  }
  fork_next();
}

void WorkerGroup::connect(Rank& rank, Start& start, UniqueFd pidfd) {
  watch(rank, std::move(start.err.read), std::move(pidfd));
  if (start.in.write) watch_stdio(std::move(start.in.write), std::move(start.out.read));
}

void WorkerGroup::watch(Rank& rank, UniqueFd stderr_end, UniqueFd pidfd) {
  rank.stderr_pipe = std::make_shared<PipeReader>(io_, std::move(stderr_end),
                                                  PipeReader::Functions{[this, &rank](std::string_view bytes) {
                                                                          rank.log.write(bytes);
                                                                          rank.tail.feed(bytes);
                                                                          on_change_();
                                                                        },
                                                                        [this, &rank](std::error_code) {
                                                                          rank.tail.close();
                                                                          on_change_();
                                                                        }});
  rank.stderr_pipe->start();
  rank.watcher = std::make_shared<ExitWatcher>(io_, std::move(pidfd), [this, &rank] { on_exit(rank); });
  rank.watcher->start();
}

void WorkerGroup::watch_stdio(UniqueFd stdin_end, UniqueFd stdout_end) {
  stdin_ = std::make_shared<PipeWriter>(io_, std::move(stdin_end), on_change_);
  stdin_->start();
  stdout_closed_ = false;
  std::error_code unknown;  // without /proc it has no name
  stdout_name_ = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", stdout_end.get()), unknown).string();
  stdout_ = std::make_shared<PipeReader>(io_, std::move(stdout_end),
                                         PipeReader::Functions{[this](std::string_view bytes) { on_stdout(bytes); },
                                                               [this](std::error_code) {
                                                                 stdout_closed_ = true;
                                                                 on_change_();
                                                               }});
  stdout_->start();
}

void WorkerGroup::on_exit(Rank& rank) {
  rank.exit = peek_exit(rank.pid);
  if (!rank.exit) rank.exit = ExitStatus{false, -1};  // somebody else has reaped it, so nobody can say how it ended
  rank.killed_by_driver = rank.exit->signaled && std::ranges::count(rank.signals_sent, rank.exit->code) > 0;
  exit_order_.push_back(static_cast<int>(&rank - ranks_.data()));
  on_change_();
}

void WorkerGroup::on_stdout(std::string_view bytes) {
  stdout_log_.write(bytes);
  bool message = false;
  for (const protocol::Line& line : framer_.feed(bytes)) {
    if (line.kind == protocol::Line::Kind::chatter) {
      if (line.text.find_first_not_of(" \t\r") != std::string::npos) last_chatter_ = protocol::clean_text(line.text);
      if (line.text.find(protocol::kSentinel) != std::string::npos)
        misplaced_sentinel_ = protocol::clean_text(line.text);
      continue;
    }
    message = true;
    on_line(line);
  }
  if (message) on_change_();
}

void WorkerGroup::on_line(const protocol::Line& line) {
  if (line.kind == protocol::Line::Kind::over_long) {
    inbox_.emplace_back(ProtocolBreak{fmt::format("a line of more than {} MiB", protocol::kMaxLineBytes >> 20U)});
    return;
  }
  try {
    inbox_.emplace_back(protocol::parse_event(line.text));
  } catch (const protocol::ProtocolError& error) {
    inbox_.emplace_back(
        ProtocolBreak{fmt::format("a line that is no message: {}: {}", error.what(), excerpt(line.text))});
  }
}

void WorkerGroup::send(const protocol::Request& request) {
  send_line(protocol::encode(request));
}

void WorkerGroup::send_line(std::string json) {
  stdin_->write(std::move(json) + '\n');
}

void WorkerGroup::close_stdin_when_written() {
  if (stdin_) stdin_->close_when_written();
}

std::optional<Incoming> WorkerGroup::take() {
  if (inbox_.empty()) return std::nullopt;
  Incoming out = std::move(inbox_.front());
  inbox_.pop_front();
  return out;
}

std::vector<int> WorkerGroup::pids() const {
  std::vector<int> out;
  for (const Rank& rank : ranks_) {
    if (rank.pid > 0) out.push_back(rank.pid);
  }
  return out;
}

bool WorkerGroup::drained() const {
  const bool stdout_done = stdout_closed_ || ranks_.empty() || !ranks_.front().exit;
  return stdout_done && std::ranges::all_of(ranks_, [](const Rank& r) { return !r.exit || r.tail.closed(); });
}

void WorkerGroup::begin_case(std::int64_t seq) {
  misplaced_sentinel_.clear();
  for (Rank& rank : ranks_) rank.tail.begin_case(seq);
}

void WorkerGroup::reopen_tails() {
  for (Rank& rank : ranks_) rank.tail.reopen();
}

bool WorkerGroup::tails_complete() const {
  return std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.tail.complete(); });
}

std::vector<StderrTail> WorkerGroup::tails() {
  std::vector<StderrTail> out;
  out.reserve(ranks_.size());
  for (Rank& rank : ranks_) out.push_back(rank.tail.tail());
  return out;
}

void WorkerGroup::signal_ranks(int signal) {
  for (Rank& rank : ranks_) {
    if (rank.pid <= 0 || rank.exit) continue;
    rank.signals_sent.push_back(signal);
    ::kill(rank.pid, signal);
  }
}

void WorkerGroup::signal_groups(int signal) {
  for (Rank& rank : ranks_) {
    if (rank.pid <= 0) continue;
    if (!rank.exit) rank.signals_sent.push_back(signal);
    ::kill(-rank.pid, signal);
  }
}

void WorkerGroup::reap() {
  for (Rank& rank : ranks_) {
    if (rank.stderr_pipe) rank.stderr_pipe->close();
    if (rank.watcher) rank.watcher->close();
    if (rank.pid > 0 && reap_if_exited(rank.pid)) rank.pid = -1;
  }
  if (stdin_) stdin_->close();
  if (stdout_) stdout_->close();
  for (Rank& rank : ranks_) rank.log.close();
  stdout_log_.close();
}

}  // namespace cp_pool
