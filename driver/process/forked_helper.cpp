#include "driver/process/forked_helper.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include "driver/process/spawn.h"
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

}  // namespace cp_pool
