#include "driver/pool/worker_group.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "worker/protocol/environment.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

constexpr const char* kEnvWaitPolicy = "OMP_WAIT_POLICY";

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
  const ListeningSocket master = listen_on_loopback();
  for (int rank = 0; rank < config_.world_size; ++rank) {
    try {
      spawn_rank(ranks_.emplace_back(rank), master);
    } catch (...) {
      if (ranks_.back().pid < 0) ranks_.pop_back();
      throw;
    }
  }
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

void WorkerGroup::spawn_rank(Rank& rank, const ListeningSocket& master) {
  const int index = static_cast<int>(&rank - ranks_.data());
  const bool first = index == 0;
  if (config_.log_dir) {
    rank.log = {*config_.log_dir / fmt::format("rank{}.stderr.log", index), config_.on_log_error};
  }

  protocol::RankEnvironment environment;
  environment.rank = index;
  environment.world_size = config_.world_size;
  environment.local_rank = index;
  environment.master_port = master.port;
  environment.tag = config_.tag;
  environment.device = config_.device;
  environment.share_gpus = config_.share_gpus;
  if (first) environment.master_fd = master.fd.get();

  auto variables = protocol::to_variables(environment);
  // Threads of OpenMP that wait for work spin: ranks, and pools, side by side would take the cores from each other.
  if (std::getenv(kEnvWaitPolicy) == nullptr) variables.emplace_back(kEnvWaitPolicy, "passive");

  variables.insert(variables.end(), config_.variables.begin(), config_.variables.end());

  Pipe in = first ? make_pipe() : Pipe{};
  Pipe out = first ? make_pipe() : Pipe{};
  Pipe err = make_pipe();
  SpawnedProcess process = cp_pool::spawn({config_.command, std::move(variables), in.read.get(), out.write.get(),
                                           err.write.get(), first ? master.fd.get() : -1});
  rank.pid = process.pid;
  watch(rank, std::move(err.read), std::move(process.pidfd));
  if (first) watch_stdio(std::move(in.write), std::move(out.read));
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
