#include "driver/os/helper_process.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "cases/file_reader.h"
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

// A file without a name.
UniqueFd make_file() {
  UniqueFd out{::memfd_create("filter", MFD_CLOEXEC)};
  if (!out) throw std::system_error(errno, std::generic_category(), "memfd_create");
  return out;
}

std::string contents_of(const UniqueFd& file) {
  return FileReader(fmt::format("/proc/self/fd/{}", file.get())).read_all();
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
  reap_until(std::chrono::steady_clock::now() + kGone, pid_);
}

// The outputs are files, so the program never waits for a reader.
Filtered run_filter(const std::vector<std::string>& argv, const std::string& input,
                    std::vector<std::pair<std::string, std::string>> env) {
  const UniqueFd in = make_file();
  const UniqueFd out = make_file();
  const UniqueFd err = make_file();
  if (::pwrite(in.get(), input.data(), input.size(), 0) != static_cast<ssize_t>(input.size())) {
    throw std::system_error(errno, std::generic_category(), "pwrite");
  }
  const SpawnedProcess process = spawn(
      {.argv = argv, .env = std::move(env), .stdin_fd = in.get(), .stdout_fd = out.get(), .stderr_fd = err.get()});
  pollfd ended{.fd = process.pidfd.get(), .events = POLLIN, .revents = 0};
  TEMP_FAILURE_RETRY(::poll(&ended, 1, -1));
  const ExitStatus exit = peek_exit(process.pid).value();
  reap_if_exited(process.pid);
  return {.exit = exit, .out = contents_of(out), .err = contents_of(err)};
}

}  // namespace cp_pool
