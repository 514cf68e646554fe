#include "driver/os/spawn.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <netinet/in.h>
#include <string_view>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "driver/core/mapped.h"
#include "worker/protocol/block_signals.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

namespace {

// The child's message to the parent, through a close-on-exec pipe, if it cannot become the worker.
struct ChildError {
  enum class Step : int { parent_died, descriptors, folder, exec };
  Step step = Step::exec;
  int error = 0;
};

// Everything that the child needs. It is prepared before the fork, because afterwards only async-signal-safe calls are
// allowed.
struct ChildPlan {
  std::string program;  // program to execute: argv[0], or the path where it was found
  std::string folder;   // working directory; empty: that of this process
  std::vector<const char*> argv;
  std::vector<const char*> envp;
  std::array<int, 3> stdio{-1, -1, -1};
  int inherited_fd = -1;
  int error_fd = -1;
  pid_t parent = -1;
};

[[noreturn]] void fail_child(int error_fd, ChildError::Step step, int error) {
  const ChildError report{step, error};
  [[maybe_unused]] const auto written = ::write(error_fd, &report, sizeof report);
  _exit(protocol::kExitCommandNotFound);
}

// Connects stdin, stdout and stderr. The sources are first duplicated to numbers above 2, so that no dup2 overwrites
// one that is still needed.
bool set_stdio(const std::array<int, 3>& stdio) {
  std::array<int, 3> sources{};
  for (std::size_t i = 0; i < 3; ++i) {
    const int fd = stdio[i] >= 0 ? stdio[i] : ::open("/dev/null", O_RDWR | O_CLOEXEC);
    sources[i] = fd < 0 ? -1 : ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (sources[i] < 0) return false;
  }
  for (int i = 0; i < 3; ++i) {
    if (::dup2(sources[static_cast<std::size_t>(i)], i) < 0) return false;
  }
  return true;
}

[[noreturn]] void become_worker(const ChildPlan& plan) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // If the parent died before prctl, nobody would send the signal.
  if (::getppid() != plan.parent) fail_child(plan.error_fd, ChildError::Step::parent_died, 0);
  if (!set_stdio(plan.stdio)) fail_child(plan.error_fd, ChildError::Step::descriptors, errno);
  // Descriptors that the driver itself inherited without close-on-exec must not reach the ranks either.
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  if (plan.inherited_fd >= 0 && ::fcntl(plan.inherited_fd, F_SETFD, 0) < 0) {
    fail_child(plan.error_fd, ChildError::Step::descriptors, errno);
  }
  if (!plan.folder.empty() && ::chdir(plan.folder.c_str()) < 0) {
    fail_child(plan.error_fd, ChildError::Step::folder, errno);
  }
  reset_signals();
  ::execvpe(plan.program.c_str(), const_cast<char* const*>(plan.argv.data()),
            const_cast<char* const*>(plan.envp.data()));
  fail_child(plan.error_fd, ChildError::Step::exec, errno);
}

std::vector<std::string> merged_environment(const SpawnRequest& request) {
  Variables merged = request.process != nullptr ? request.process->environment : own_environment();
  std::erase_if(merged, [&](const auto& variable) {
    const auto replaces = [&](const auto& other) { return other.first == variable.first; };
    return std::ranges::count(request.without, variable.first) > 0 || std::ranges::any_of(request.env, replaces);
  });
  merged.insert(merged.end(), request.env.begin(), request.env.end());
  return mapped(merged, [](const auto& variable) { return fmt::format("{}={}", variable.first, variable.second); });
}

std::vector<const char*> c_strings(const std::vector<std::string>& strings) {
  std::vector<const char*> out;
  out.reserve(strings.size() + 1);
  for (const std::string& s : strings) out.push_back(s.c_str());
  out.push_back(nullptr);
  return out;
}

pid_t fork_worker(const ChildPlan& plan) {
  const BlockAllSignals blocked;  // no handler of the driver may run in the child between fork and exec
  const pid_t pid = ::fork();
  if (pid == 0) become_worker(plan);
  return pid;
}

// Blocks until the child's exec has succeeded (the pipe closes) or the child has failed. Throws SpawnError.
void await_exec(int error_fd, pid_t pid, const std::string& program) {
  ChildError report;
  if (TEMP_FAILURE_RETRY(::read(error_fd, &report, sizeof report)) == 0) return;
  TEMP_FAILURE_RETRY(::waitpid(pid, nullptr, 0));
  if (report.step == ChildError::Step::exec) {
    throw SpawnError(fmt::format("cannot run \"{}\": {}", program, std::strerror(report.error)), report.error);
  }
  const char* const what = report.step == ChildError::Step::folder ? "its working directory" : "its descriptors";
  throw SpawnError(fmt::format("cannot start \"{}\": {}: {}", program, what, std::strerror(report.error)),
                   report.error);
}

}  // namespace

void reset_signals() {
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  // The kernel refuses SIGKILL and SIGSTOP.
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

std::string found_program(const std::string& name, const ProcessEnvironment& process) {
  if (name.find('/') != std::string::npos) return name;
  for (const auto& [key, value] : process.environment) {
    if (key != "PATH") continue;
    for (std::size_t begin = 0; begin <= value.size();) {
      const std::size_t end = std::min(value.find(':', begin), value.size());
      const std::string_view entry = std::string_view{value}.substr(begin, end - begin);
      // An empty or relative entry is relative to the working directory.
      const std::filesystem::path program = process.folder / std::filesystem::path{entry} / name;
      if (::access(program.c_str(), X_OK) == 0 && !std::filesystem::is_directory(program)) return program.string();
      begin = end + 1;
    }
  }
  return name;
}

bool SpawnError::permanent() const {
  return error == ENOENT || error == EACCES || error == ENOEXEC || error == ENOTDIR || error == EISDIR ||
         error == ELOOP || error == ENAMETOOLONG || error == E2BIG;
}

SpawnedProcess spawn(const SpawnRequest& request) {
  if (request.argv.empty()) throw SpawnError("the worker command is empty", EINVAL);
  const std::vector<std::string> environment = merged_environment(request);
  Pipe error_pipe = make_pipe();
  const ChildPlan plan{.program = request.process == nullptr  // execvpe uses the PATH of this process
                                      ? request.argv.front()
                                      : found_program(request.argv.front(), *request.process),
                       .folder = request.process == nullptr ? "" : request.process->folder.string(),
                       .argv = c_strings(request.argv),
                       .envp = c_strings(environment),
                       .stdio = {request.stdin_fd, request.stdout_fd, request.stderr_fd},
                       .inherited_fd = request.inherited_fd,
                       .error_fd = error_pipe.write.get(),
                       .parent = ::getpid()};

  const pid_t pid = fork_worker(plan);
  if (pid < 0) throw SpawnError(fmt::format("cannot fork: {}", std::strerror(errno)), errno);
  ::setpgid(pid, pid);  // in parent and child, as either may run first
  error_pipe.write.reset();
  await_exec(error_pipe.read.get(), pid, request.argv.front());

  SpawnedProcess out{pid, UniqueFd{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))}};
  if (!out.pidfd) {
    const int error = errno;
    ::kill(-pid, SIGKILL);
    TEMP_FAILURE_RETRY(::waitpid(pid, nullptr, 0));
    throw SpawnError(fmt::format("cannot watch process {}: pidfd_open: {}", pid, std::strerror(error)), error);
  }
  return out;
}

Pipe make_pipe() {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) < 0) throw std::system_error(errno, std::generic_category(), "pipe2");
  return {UniqueFd{fds[0]}, UniqueFd{fds[1]}};
}

ListeningSocket listen_on_loopback() {
  ListeningSocket out{UniqueFd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)}};
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (!out.fd || ::bind(out.fd.get(), generic, size) < 0 || ::listen(out.fd.get(), SOMAXCONN) < 0 ||
      ::getsockname(out.fd.get(), generic, &size) < 0) {
    throw std::system_error(errno, std::generic_category(), "cannot listen on 127.0.0.1");
  }
  out.port = ntohs(address.sin_port);
  return out;
}

std::optional<ExitStatus> peek_exit(pid_t child) {
  siginfo_t info{};
  const auto rc = TEMP_FAILURE_RETRY(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT));
  if (rc < 0 || info.si_pid == 0) return std::nullopt;
  return ExitStatus{info.si_code != CLD_EXITED, info.si_status};
}

bool reap_if_exited(pid_t child) {
  return TEMP_FAILURE_RETRY(::waitpid(child, nullptr, WNOHANG)) != 0;
}

void reap_until(std::chrono::steady_clock::time_point limit, pid_t child) {
  while (!reap_if_exited(child) && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::string describe(const ExitStatus& status) {
  if (!status.signaled) return fmt::format("exit {}", status.code);
  const char* const name = ::sigabbrev_np(status.code);
  if (name == nullptr) return fmt::format("signal {}", status.code);
  return fmt::format("signal {} (SIG{})", status.code, name);
}

}  // namespace cp_pool
