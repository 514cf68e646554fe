#include "worker/stack_dump.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <string_view>
#include <sys/syscall.h>
#include <system_error>
#include <ucontext.h>
#include <unistd.h>

#include <fmt/format.h>

#include "cases/case_phases.h"
#include "worker/pending_operation.h"
#include "worker/raw_frames.h"

namespace cp_pool {

namespace {

constexpr std::size_t kMaxHeadline = 64;
constexpr std::size_t kHandlerStack = std::size_t{128} << 10U;

struct FatalSignal {
  int number;
  std::string_view name;
};
constexpr std::array<FatalSignal, 5> kFatalSignals{
    {{SIGSEGV, "SIGSEGV"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"}, {SIGFPE, "SIGFPE"}, {SIGILL, "SIGILL"}}};

// The data that a handler needs, prepared in advance, because a handler may not allocate or format.
std::array<char, kMaxHeadline> headline;
std::size_t headline_size = 0;
std::atomic<pid_t> shown_thread{0};
std::atomic<int> signal_before{0};  // set by show_also; 0: none
std::atomic_flag writing = ATOMIC_FLAG_INIT;
alignas(16) std::array<char, kHandlerStack> handler_stack;

pid_t this_thread() {
  return static_cast<pid_t>(syscall(SYS_gettid));
}

void put(std::string_view text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

void put_hex(std::uintptr_t value) {
  std::array<char, 2 * sizeof value> digits{};
  std::size_t at = digits.size();
  do {
    digits.at(--at) = "0123456789abcdef"[value % 16U];
    value /= 16U;
  } while (value != 0);
  put("0x");
  put({digits.data() + at, digits.size() - at});
}

// Returns the instruction at which the signal interrupted the thread.
const void* program_counter(const void* context) {
  const mcontext_t& registers = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(registers.gregs[REG_RIP]);  // NOLINT(performance-no-int-to-ptr): a register
#elif defined(__aarch64__)
  return reinterpret_cast<const void*>(registers.pc);
#else
  return nullptr;
#endif
}

// The driver keeps the end of a rank's stderr, so the most important line comes last.
void put_place(bool of_computing_thread) {
  const std::string_view pending = pending_operation();
  put("in ");
  put(pending.empty() ? "no communication" : pending);
  put(", phase ");
  put(current_phase());
  put("; above is the stack of ");
  put(of_computing_thread ? "the computing thread" : "a thread other than the computing thread");
  put(", innermost call last\n");
}

void show_stack(const void* context) {
  put("\n");
  if (const int before = signal_before.load(); before != 0) syscall(SYS_tgkill, getpid(), this_thread(), before);
  write_raw_frames(STDERR_FILENO, program_counter(context));
  put({headline.data(), headline_size});
}

// The signal may reach any thread of the process, so the handler forwards it to the thread to show.
void on_request(int signal, siginfo_t* /*info*/, void* context) {
  const int saved_errno = errno;
  const pid_t thread = shown_thread.load();
  if (this_thread() != thread) {
    syscall(SYS_tgkill, getpid(), thread, signal);
  } else if (!writing.test_and_set()) {
    show_stack(context);
    put_place(true);
    writing.clear();
  }
  errno = saved_errno;
}

void put_cause(int signal, const siginfo_t& info) {
  const auto* const known = std::ranges::find(kFatalSignals, signal, &FatalSignal::number);
  put(known == kFatalSignals.end() ? "a signal" : known->name);
  // The code of a signal that a process has sent is not positive.
  const bool has_address = info.si_code > 0 && signal != SIGABRT;
  if (has_address) {
    put(" at address ");
    put_hex(reinterpret_cast<std::uintptr_t>(info.si_addr));
  }
  put(" ");
}

// When the handler returns, the default action follows at once, with this thread's own frames in a core dump.
void on_fatal(int signal, siginfo_t* info, void* context) {
  if (writing.test_and_set()) {  // another thread is dying and has to finish writing
    constexpr timespec kLongEnough{1, 0};
    nanosleep(&kLongEnough, nullptr);
  } else {
    show_stack(context);
    put_cause(signal, *info);
    put_place(this_thread() == shown_thread.load());
  }
  std::signal(signal, SIG_DFL);
  syscall(SYS_tgkill, getpid(), this_thread(), signal);
}

void handle(int signal, void (*handler)(int, siginfo_t*, void*), int flags) {
  struct sigaction action{};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | flags;
  if (sigaction(signal, &action, nullptr) != 0) {
    throw std::system_error(errno, std::generic_category(), fmt::format("sigaction({})", signal));
  }
}

void use_handler_stack() {
  stack_t now{};
  if (sigaltstack(nullptr, &now) != 0 || (now.ss_flags & SS_DISABLE) == 0) return;  // a sanitizer's stack is kept
  stack_t ours{};
  ours.ss_sp = handler_stack.data();
  ours.ss_size = handler_stack.size();
  sigaltstack(&ours, nullptr);
}

}  // namespace

void show_also(int signal) {
  signal_before = signal;
}

void install_stack_dump(int rank) {
  const auto end = fmt::format_to_n(headline.data(), headline.size(), "cp-pool-worker: rank {}: ", rank);
  headline_size = std::min(end.size, headline.size());
  shown_thread = this_thread();
  set_current_phase(case_phase::kStart);
  prepare_raw_frames();
  use_handler_stack();
  handle(SIGUSR2, on_request, SA_RESTART);
  for (const FatalSignal& signal : kFatalSignals) {
    struct sigaction now{};
    if (sigaction(signal.number, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) handle(signal.number, on_fatal, 0);
  }
}

}  // namespace cp_pool
