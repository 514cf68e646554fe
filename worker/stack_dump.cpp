#include "worker/stack_dump.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <execinfo.h>
#include <string_view>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "worker/pending_operation.h"

namespace cp_pool {

namespace {

constexpr int kMaxFrames = 64;
constexpr std::size_t kMaxHeadline = 64;

// What the handler needs, worked out before: it may not allocate or format.
std::array<char, kMaxHeadline> headline;
std::size_t headline_size = 0;
std::atomic<pid_t> shown_thread{0};

void put(std::string_view text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

void show_stack() {
  std::array<void*, kMaxFrames> frames;
  const int depth = backtrace(frames.data(), kMaxFrames);
  // The driver keeps the end of what a rank says, so what matters most comes last.
  std::reverse(frames.begin(), frames.begin() + depth);
  put("\n");
  backtrace_symbols_fd(frames.data(), depth, STDERR_FILENO);
  put({headline.data(), headline_size});
  const std::string_view pending = pending_operation();
  put(pending.empty() ? "no communication" : pending);
  put("; above, the stack of the computing thread: the innermost call last\n");
}

// The signal may reach any thread of the process: it is handed on to the one to show.
void on_signal(int signal) {
  const int saved_errno = errno;
  const pid_t thread = shown_thread.load();
  if (static_cast<pid_t>(syscall(SYS_gettid)) == thread) {
    show_stack();
  } else {
    syscall(SYS_tgkill, getpid(), thread, signal);
  }
  errno = saved_errno;
}

}  // namespace

void install_stack_dump(int rank) {
  const auto end = fmt::format_to_n(headline.data(), headline.size(), "cp-pool-worker: rank {}: in ", rank);
  headline_size = std::min(end.size, headline.size());
  shown_thread = static_cast<pid_t>(syscall(SYS_gettid));
  std::array<void*, 1> warm_up;  // the first backtrace loads a library, which a handler must not do
  backtrace(warm_up.data(), static_cast<int>(warm_up.size()));
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  if (sigaction(SIGUSR2, &action, nullptr) != 0) {
    throw std::system_error(errno, std::generic_category(), "sigaction(SIGUSR2)");
  }
}

}  // namespace cp_pool
