#include "tests/real_ranks/driver_run.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <spawn.h>
#include <stdexcept>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace cp_pool::test {
namespace {

// The events in the complete lines of a file; a last line that is still being written is left out.
std::vector<nlohmann::json> read_events(const std::filesystem::path& file) {
  std::vector<nlohmann::json> events;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line) && !in.eof();) events.push_back(nlohmann::json::parse(line));
  return events;
}

std::string program(const char* name, const char* built) {
  std::error_code ignored;
  const auto beside = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / name;
  return std::filesystem::exists(beside, ignored) ? beside.string() : built;
}

}  // namespace

std::string driver_program() {
  return program("cp-pool", CP_POOL_BINARY);
}

std::string worker_program() {
  return program("cp-pool-worker", CP_POOL_WORKER_BINARY);
}

DriverRun::DriverRun(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), driver_program());
  arguments.insert(arguments.end(), {"--events", (folder_ / "events.jsonl").string()});
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  std::array<int, 2> in{};
  if (pipe2(in.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe2");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  const std::string output = (folder_ / "output.txt").string();
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  // A process group of its own, as a shell gives to a job, so that SIGTSTP can stop it.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawn(&pid_, argv.front(), &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  stdin_fd_ = in[1];
  if (error != 0) throw std::system_error(error, std::generic_category(), "posix_spawn " + driver_program());
}

DriverRun::~DriverRun() {
  close_stdin();
  if (!waited_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

nlohmann::json DriverRun::wait_for(const std::function<bool(const nlohmann::json&)>& predicate,
                                   std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    // Whether the driver has ended is asked before its events are read, so that no event of its last moments is missed.
    siginfo_t info{};
    const bool ended = waited_ || (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                                   info.si_pid == pid_);
    for (const auto& event : events()) {
      if (predicate(event)) return event;
    }
    if (ended) throw std::runtime_error("cp-pool ended without the expected event; it printed:\n" + output());
    if (std::chrono::steady_clock::now() > deadline) {
      throw std::runtime_error("no such event in time; cp-pool printed:\n" + output());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

int DriverRun::wait() {
  if (!waited_) {
    int status = 0;
    waitpid(pid_, &status, 0);
    waited_ = true;
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  return exit_code_;
}

void DriverRun::write_line(const std::string& line) {
  const std::string text = line + "\n";
  if (write(stdin_fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw std::system_error(errno, std::generic_category(), "write to cp-pool's stdin");
  }
}

void DriverRun::close_stdin() {
  if (stdin_fd_ >= 0) close(stdin_fd_);
  stdin_fd_ = -1;
}

std::vector<nlohmann::json> DriverRun::events() const {
  return read_events(folder_ / "events.jsonl");
}

std::string DriverRun::output() const {
  return read_file(folder_ / "output.txt");
}

bool process_exists(pid_t pid) {
  return kill(pid, 0) == 0 || errno != ESRCH;
}

bool process_runs(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(in, text);
  const std::size_t end_of_name = text.rfind(") ");
  return end_of_name != std::string::npos && text.at(end_of_name + 2) != 'Z' && text.at(end_of_name + 2) != 'X';
}

}  // namespace cp_pool::test
