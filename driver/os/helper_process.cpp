#include "driver/os/helper_process.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <fcntl.h>
#include <poll.h>
#include <string_view>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "driver/os/spawn.h"
#include "worker/protocol/block_signals.h"

namespace cp_pool {

namespace {

constexpr std::chrono::milliseconds kGone{500};

[[noreturn]] void be_helper(const std::function<void(int)>& function, int output, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) _exit(1);
  constexpr int kOutput = 3;
  if (output != kOutput && ::dup2(output, kOutput) < 0) _exit(1);
  ::close_range(kOutput + 1, ~0U, 0);  // closes inherited descriptors such as ends of workers' pipes
  // The driver's signal handlers must not run in the child, since they write to the driver's descriptors.
  reset_signals();
  try {
    function(kOutput);
  } catch (const std::exception&) {
    _exit(1);
  }
  _exit(0);
}

}  // namespace

ForkedHelper::ForkedHelper(const std::function<void(int)>& function) {
  Pipe pipe = make_pipe();
  const pid_t parent = ::getpid();
  int error = 0;
  {
    const BlockAllSignals block;
    pid_ = ::fork();
    if (pid_ == 0) be_helper(function, pipe.write.get(), parent);
    error = errno;
  }
  if (pid_ < 0) throw std::system_error(error, std::generic_category(), "fork");
  output_ = std::move(pipe.read);
}

ForkedHelper::~ForkedHelper() {
  ::kill(pid_, SIGKILL);
  const auto give_up = std::chrono::steady_clock::now() + kGone;
  while (::waitpid(pid_, nullptr, WNOHANG) == 0 && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

namespace {

// Kills and reaps the program, however the function is left.
class Reaper {
 public:
  explicit Reaper(pid_t pid) : pid_(pid) {}
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;
  ~Reaper() {
    if (pid_ < 0) return;
    ::kill(-pid_, SIGKILL);
    wait();
  }

  ExitStatus wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    if (WIFSIGNALED(status)) return {true, WTERMSIG(status)};
    return {false, WEXITSTATUS(status)};
  }

 private:
  pid_t pid_;
};

void make_nonblocking(const UniqueFd& fd) {
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) < 0) {
    throw std::system_error(errno, std::generic_category(), "fcntl");
  }
}

bool is_temporary(ssize_t result) {
  return result < 0 && (errno == EAGAIN || errno == EINTR);
}

// Writes some of the input. Closes the pipe when everything is written or nobody reads it any more.
void feed(UniqueFd& pipe, std::string_view& input) {
  const ssize_t written = input.empty() ? 0 : ::write(pipe.get(), input.data(), input.size());
  if (written > 0) input.remove_prefix(static_cast<std::size_t>(written));
  if (input.empty() || (written < 0 && !is_temporary(written))) pipe.reset();
}

// Reads some of the output. Closes the pipe at end of file.
void take(UniqueFd& pipe, std::string& into) {
  std::array<char, 65536> buffer{};
  const ssize_t count = ::read(pipe.get(), buffer.data(), buffer.size());
  if (count > 0) {
    into.append(buffer.data(), static_cast<std::size_t>(count));
  } else if (!is_temporary(count)) {
    pipe.reset();
  }
}

// Ignores SIGPIPE, so that a program that stops reading does not kill this process.
class IgnoreSigpipe {
 public:
  IgnoreSigpipe() {
    struct sigaction ignore{};
    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &ignore, &before_);
  }
  IgnoreSigpipe(const IgnoreSigpipe&) = delete;
  IgnoreSigpipe& operator=(const IgnoreSigpipe&) = delete;
  ~IgnoreSigpipe() { ::sigaction(SIGPIPE, &before_, nullptr); }

 private:
  struct sigaction before_{};
};

}  // namespace

Filtered run_filter(const std::vector<std::string>& argv, const std::string& input,
                    std::vector<std::pair<std::string, std::string>> env) {
  const IgnoreSigpipe ignored;
  Pipe in = make_pipe();
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  const SpawnedProcess process = spawn({.argv = argv,
                                        .env = std::move(env),
                                        .stdin_fd = in.read.get(),
                                        .stdout_fd = out.write.get(),
                                        .stderr_fd = err.write.get()});
  Reaper reaper(process.pid);
  in.read.reset();
  out.write.reset();
  err.write.reset();
  make_nonblocking(in.write);
  Filtered result;
  std::string_view left = input;
  if (left.empty()) in.write.reset();
  while (out.read || err.read) {
    std::array<pollfd, 3> events{
        {{in.write.get(), POLLOUT, 0}, {out.read.get(), POLLIN, 0}, {err.read.get(), POLLIN, 0}}};
    if (::poll(events.data(), events.size(), -1) < 0) {
      if (errno == EINTR) continue;
      throw std::system_error(errno, std::generic_category(), "poll");
    }
    if (events[0].revents != 0) feed(in.write, left);
    if (events[1].revents != 0) take(out.read, result.out);
    if (events[2].revents != 0) take(err.read, result.err);
  }
  result.exit = reaper.wait();
  return result;
}

}  // namespace cp_pool
