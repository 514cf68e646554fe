#include "worker/testing/worker_group.h"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "worker/protocol/environment.h"

namespace cp_pool::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

int check(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

struct Listener {
  int fd = -1;
  std::uint16_t port = 0;
};

Listener listen_on_loopback() {
  Listener out;
  out.fd = check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  check(bind(out.fd, reinterpret_cast<sockaddr*>(&address), size), "bind");
  check(listen(out.fd, SOMAXCONN), "listen");
  check(getsockname(out.fd, reinterpret_cast<sockaddr*>(&address), &size), "getsockname");
  out.port = ntohs(address.sin_port);
  return out;
}

// Runs in the child process, between fork and exec.
[[noreturn]] void become_rank(const std::vector<std::string>& command, const std::array<int, 3>& streams,
                              const std::vector<std::pair<std::string, std::string>>& variables, int master_fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (int fd = 0; fd < 3; ++fd) dup2(streams[static_cast<std::size_t>(fd)], fd);
  if (master_fd >= 0) fcntl(master_fd, F_SETFD, 0);
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(protocol::kExitCommandNotFound);
}

std::vector<std::pair<std::string, std::string>> open_mpi_variables(const protocol::RankEnvironment& environment) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(environment.rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(environment.world_size)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(environment.rank)},
          {protocol::kEnvMasterAddr, environment.master_addr},
          {protocol::kEnvMasterPort, std::to_string(environment.master_port)}};
}

std::string describe(int status) {
  if (WIFSIGNALED(status)) return fmt::format("signal {}", WTERMSIG(status));
  return fmt::format("exit {}", WEXITSTATUS(status));
}

}  // namespace

nlohmann::json small_case(int cp_size) {
  return {{"suite", "test"}, {"model", "small"}, {"cp_size", cp_size}, {"dtype", "fp32"},      {"batch", 1},
          {"seqlen_q", 32},  {"seqlen_kv", 32},  {"heads", 8},         {"kv_heads", 8},        {"head_dim_qk", 8},
          {"head_dim_v", 8}, {"causal", true},   {"comm", "p2p"},      {"deterministic", true}};
}

WorkerGroup::WorkerGroup(const Config& config) : ranks_(config.ranks) {
  std::array<int, 2> in{};
  std::array<int, 2> out{};
  check(pipe2(in.data(), O_CLOEXEC), "pipe2");
  check(pipe2(out.data(), O_CLOEXEC), "pipe2");
  const int null = check(open("/dev/null", O_RDWR | O_CLOEXEC), "/dev/null");
  const Listener listener = listen_on_loopback();
  if (config.as_open_mpi) close(listener.fd);
  std::vector<std::string> command{config.binary};
  command.insert(command.end(), config.arguments.begin(), config.arguments.end());
  for (int rank = 0; rank < ranks_; ++rank) {
    std::string file = fmt::format("{}/cp-pool-stderr-XXXXXX", std::getenv("TMPDIR") ? std::getenv("TMPDIR") : "/tmp");
    const int err = check(mkostemp(file.data(), O_CLOEXEC), "mkostemp");
    stderr_files_.push_back(file);
    protocol::RankEnvironment environment;
    environment.rank = environment.local_rank = rank;
    environment.world_size = ranks_;
    environment.master_port = listener.port;
    if (rank == 0 && !config.as_open_mpi) environment.master_fd = listener.fd;
    auto variables = config.as_open_mpi ? open_mpi_variables(environment) : to_variables(environment);
    for (const auto& variable : config.environment) variables.emplace_back(variable);
    const pid_t pid = check(fork(), "fork");
    if (pid == 0) {
      become_rank(command, {rank == 0 ? in[0] : null, rank == 0 ? out[1] : null, err}, variables,
                  environment.master_fd.value_or(-1));
    }
    pids_.push_back(pid);
    close(err);
  }
  statuses_.resize(pids_.size());
  if (!config.as_open_mpi) close(listener.fd);
  for (const int fd : {in[0], out[1], null}) close(fd);
  stdin_ = in[1];
  stdout_ = out[0];
}

WorkerGroup::~WorkerGroup() {
  for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
    if (statuses_[rank]) continue;
    ::kill(pids_[rank], SIGKILL);
    waitpid(pids_[rank], nullptr, 0);
  }
  close_stdin();
  close(stdout_);
  for (const std::string& file : stderr_files_) unlink(file.c_str());
}

void WorkerGroup::send_line(const std::string& line) {
  const std::string text = line + "\n";
  std::size_t sent = 0;
  while (sent < text.size()) {
    sent += static_cast<std::size_t>(check(static_cast<int>(write(stdin_, &text[sent], text.size() - sent)), "write"));
  }
}

void WorkerGroup::close_stdin() {
  if (stdin_ >= 0) close(std::exchange(stdin_, -1));
}

void WorkerGroup::kill(int rank, int signal) {
  ::kill(pid(rank), signal);
}

void WorkerGroup::stop(int rank) {
  kill(rank, SIGSTOP);
  check(waitpid(pid(rank), nullptr, WUNTRACED), "waitpid");
}

std::optional<protocol::Event> WorkerGroup::next_event() {
  const auto deadline = Clock::now() + kPatience;
  while (events_.empty()) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
    pollfd ready{stdout_, POLLIN, 0};
    if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) <= 0) return std::nullopt;
    std::array<char, 65536> buffer;
    const ssize_t got = read(stdout_, buffer.data(), buffer.size());
    if (got <= 0) return std::nullopt;
    for (const protocol::Line& line : framer_.feed({buffer.data(), static_cast<std::size_t>(got)})) {
      if (line.kind == protocol::Line::Kind::message) events_.push_back(protocol::parse_event(line.text));
      if (line.kind == protocol::Line::Kind::chatter) chatter_.push_back(line.text);
    }
  }
  protocol::Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void WorkerGroup::start_run(const std::string& id, const nlohmann::json& changes, std::int64_t timeout_ms,
                            bool reference_cache) {
  protocol::RunRequest request;
  request.seq = ++seq_;
  request.id = id;
  request.case_json = small_case(ranks_);
  if (changes.is_object()) request.case_json.update(changes);
  request.timeout_ms = timeout_ms;
  request.options.reference_cache = reference_cache;
  send(request);
}

protocol::ResultEvent WorkerGroup::run(const std::string& id, const nlohmann::json& changes, std::int64_t timeout_ms,
                                       bool reference_cache) {
  start_run(id, changes, timeout_ms, reference_cache);
  return next<protocol::ResultEvent>();
}

std::optional<std::vector<std::string>> WorkerGroup::wait_all(milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  std::vector<std::string> out;
  for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
    while (!statuses_[rank]) {
      int status = 0;
      if (waitpid(pids_[rank], &status, WNOHANG) == pids_[rank]) {
        statuses_[rank] = describe(status);
      } else if (Clock::now() >= deadline) {
        return std::nullopt;
      } else {
        poll(nullptr, 0, 1);
      }
    }
    out.push_back(*statuses_[rank]);
  }
  return out;
}

std::string WorkerGroup::wait_for_exit(int rank) {
  int status = 0;
  check(waitpid(pid(rank), &status, 0), "waitpid");
  statuses_[static_cast<std::size_t>(rank)] = describe(status);
  return describe(status);
}

bool WorkerGroup::wait_for_stderr(int rank, const std::string& text) const {
  const auto deadline = Clock::now() + kPatience;
  while (read_stderr(rank).find(text) == std::string::npos) {
    if (Clock::now() >= deadline) return false;
    poll(nullptr, 0, 1);
  }
  return true;
}

bool WorkerGroup::ask_until_stderr_has(int rank, int signal, const std::string& text) {
  constexpr int kPauseMs = 50;
  const auto deadline = Clock::now() + kPatience;
  while (read_stderr(rank).find(text) == std::string::npos) {
    if (Clock::now() >= deadline) return false;
    kill(rank, signal);
    poll(nullptr, 0, kPauseMs);
  }
  return true;
}

std::string WorkerGroup::rest_of_stdout() {
  const auto rest = framer_.rest();
  return rest ? rest->text : "";
}

std::string WorkerGroup::read_stderr(int rank) const {
  std::ifstream file(stderr_files_.at(static_cast<std::size_t>(rank)));
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace cp_pool::test
