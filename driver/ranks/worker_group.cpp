#include "driver/ranks/worker_group.h"

#include <algorithm>
#include <chrono>
#include <regex>
#include <system_error>

#include <fmt/format.h>

#include "worker/protocol/text_clean.h"

namespace cp_pool {

WorkerGroup::WorkerGroup(asio::io_context& io, Config config, std::function<void()> on_change)
    : io_(io), config_(std::move(config)), on_change_(std::move(on_change)) {
  ranks_.reserve(static_cast<std::size_t>(config_.world_size));  // the pipes keep references to the elements
}

WorkerGroup::~WorkerGroup() {
  if (stdin_) stdin_->close();
  if (stdout_) stdout_->close();
}

Variables WorkerGroup::variables_of(protocol::RankEnvironment rank) const {
  rank.world_size = config_.world_size;
  rank.tag = config_.tag;
  rank.device = run().device;
  rank.share_gpus = run().share_gpus;
  Variables out = protocol::to_variables(rank);
  add_wait_policy(out, process_environment());
  out.insert(out.end(), config_.variables.begin(), config_.variables.end());
  return out;
}

void WorkerGroup::open_logs() {
  if (!config_.logs.dir) return;
  std::error_code error;
  std::filesystem::create_directories(*config_.logs.dir, error);
  if (error) {
    config_.logs.on_error(fmt::format("cannot write {}: {}", config_.logs.dir->string(), error.message()));
    config_.logs.dir.reset();
    return;
  }
  stdout_log_ = {*config_.logs.dir / "rank0.stdout.log", config_.logs.on_error};
}

WorkerGroup::Rank& WorkerGroup::add_rank() {
  const int index = static_cast<int>(ranks_.size());
  Rank& rank = ranks_.emplace_back(index);
  if (config_.logs.dir) rank.log = {*config_.logs.dir / fmt::format("rank{}.stderr.log", index), config_.logs.on_error};
  return rank;
}

void WorkerGroup::watch_stdio(UniqueFd stdin_end, UniqueFd stdout_end) {
  stdin_ = std::make_shared<PipeWriter>(io_, std::move(stdin_end), on_change_);
  stdin_->start();
  stdout_closed_ = false;
  std::error_code unknown;  // without /proc the name stays empty
  stdout_name_ = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", stdout_end.get()), unknown).string();
  stdout_ = std::make_shared<PipeReader>(
      io_, std::move(stdout_end), [this](std::string_view bytes) { on_stdout(bytes); },
      [this](std::error_code) {
        stdout_closed_ = true;
        on_change_();
      });
  stdout_->start();
}

void WorkerGroup::take_stderr(Process& process, std::string_view bytes) {
  process.log.write(bytes);
  process.tail.feed(bytes);
  on_change_();
}

void WorkerGroup::end_stderr(Process& process) {
  process.tail.close();
  on_change_();
}

void WorkerGroup::watch(Process& child, UniqueFd stderr_end, UniqueFd pidfd, std::optional<int> rank,
                        std::string name) {
  child.stderr_pipe = std::make_shared<PipeReader>(
      io_, std::move(stderr_end), [this, &child](std::string_view bytes) { take_stderr(child, bytes); },
      [this, &child](std::error_code) { end_stderr(child); });
  child.stderr_pipe->start();
  child.exit_watch = watch_exit(io_, std::move(pidfd), [this, &child, rank, name = std::move(name)] {
    child.exit = peek_exit(child.pid).value_or(ExitStatus{false, -1});  // if somebody else has reaped it, it is lost
    note_end({rank, name, describe(*child.exit), child.exit});
  });
}

void WorkerGroup::stop_watching(const Process& child) {
  if (child.stderr_pipe) child.stderr_pipe->close();
  asio::error_code ignored;  // closing a pidfd loses nothing
  if (child.exit_watch) child.exit_watch->close(ignored);
}

std::vector<int> WorkerGroup::children() {
  std::vector<int> out;
  for (const Process* const child : child_processes()) {
    if (child->pid > 0) out.push_back(child->pid);
  }
  return out;
}

void WorkerGroup::await_children() {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (const int pid : children()) reap_until(give_up, pid);
  for (const Process* const child : child_processes()) stop_watching(*child);
}

void WorkerGroup::note_end(RankEnd end) {
  ends_.push_back(std::move(end));
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
    if (line.kind == protocol::Line::Kind::over_long) {
      inbox_.emplace_back(ProtocolBreak{fmt::format("a line of more than {} MiB", protocol::kMaxLineBytes >> 20U)});
      continue;
    }
    try {
      inbox_.emplace_back(protocol::parse_event(line.text));
    } catch (const protocol::ProtocolError& error) {
      const std::string excerpt = protocol::cut_text(protocol::clean_text(line.text.substr(0, 256)), 200);
      inbox_.emplace_back(ProtocolBreak{fmt::format("a line that is no message: {}: {}", error.what(), excerpt)});
    }
  }
  if (message) on_change_();
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
    if (rank.pid > 0 && rank.host.empty()) out.push_back(rank.pid);
  }
  return out;
}

RankFacts WorkerGroup::facts() const {
  RankFacts out{.pids = pids(),
                .ends = ends_,
                .tails_complete = std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.tail.complete(); }),
                .stdin_broken = stdin_ && stdin_->broken(),
                .stdin_pending = stdin_ && stdin_->pending(),
                .stdout_closed = stdout_closed_,
                .last_chatter = last_chatter_,
                .misplaced_sentinel = misplaced_sentinel_};
  add_to(out);
  return out;
}

std::vector<RankExit> WorkerGroup::exits() const {
  std::vector<RankExit> out;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const Rank& r = ranks_[rank];
    if (r.pid <= 0) continue;  // only the launcher knows this rank's process
    const auto end = std::ranges::find(ends_, static_cast<int>(rank), &RankEnd::rank);
    std::string status = end != ends_.end() ? end->how : "still there after SIGKILL";
    if (r.exit && r.exit->signaled && std::ranges::count(r.signals_sent, r.exit->code) > 0) status += ", by the driver";
    out.push_back({static_cast<int>(rank), r.pid, std::move(status), r.host});
  }
  return out;
}

void WorkerGroup::begin_case(std::int64_t seq) {
  misplaced_sentinel_.clear();
  for (StderrBuffer* const stream : streams()) stream->begin_case(seq);
}

std::string WorkerGroup::locate_ranks_in(std::string_view text) const {
  std::string out;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const std::string name = fmt::format("rank {}", rank);
    const std::string& host = ranks_[rank].host;
    if (host.empty() || text.find(fmt::format("{} on {}", name, host)) != std::string_view::npos) continue;
    if (std::regex_search(text.begin(), text.end(), std::regex(name + "(?![0-9])"))) {
      out += fmt::format("{}{} is on {}", out.empty() ? "; " : ", ", name, host);
    }
  }
  return out;
}

void WorkerGroup::reap() {
  if (stdin_) stdin_->close();
  if (stdout_) stdout_->close();
  for (Process* const child : child_processes()) {
    stop_watching(*child);
    if (child->pid > 0 && reap_if_exited(child->pid)) child->pid = -1;
    child->log.close();
  }
  for (Rank& rank : ranks_) rank.log.close();
  stdout_log_.close();
}

}  // namespace cp_pool
