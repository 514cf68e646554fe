#include "worker/stack_dump.h"

#include <array>
#include <csignal>
#include <cstdlib>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>

#include "worker/pending_operation.h"

namespace cp_pool {
namespace {

using testing::ExitedWithCode;
using testing::KilledBySignal;

constexpr const char* kOwnFrame = "#0 cp_worker_logic_test\\+0x[0-9a-f]+";
constexpr const char* kOwnModule = R"(\[CP_POOL_MODULE\] cp_worker_logic_test [0-9a-f-]+ /.*/cp_worker_logic_test)";

// Prevents core dumps of processes that these tests crash on purpose.
void become_rank() {
  constexpr rlimit kNone{0, 0};
  setrlimit(RLIMIT_CORE, &kNone);
  install_stack_dump(3);
}

void write_to(volatile int* address) {
  *address = 1;
}

// The addition after the call keeps the recursion from becoming a loop, so each call needs a frame.
int recurse(int depth) {
  std::array<volatile char, 4096> frame{};
  frame[0] = static_cast<char>(depth);
  if (depth < 0) return 0;
  return recurse(depth + 1) + frame[0];
}

std::string dump(const std::string& cause, const std::string& place) {
  return std::string(kOwnFrame) + "\n(.*\n)*" + kOwnModule + "\n(.*\n)*cp-pool-worker: rank 3: " + cause + "in " +
         place;
}

TEST(StackDump, ABadAddressLeavesItsStackAndTheSignalKills) {
  EXPECT_EXIT(
      {
        become_rank();
        set_current_phase("forward");
        const PendingOperationGuard waits("exchange with rank 1");
        write_to(reinterpret_cast<int*>(16));
      },
      KilledBySignal(SIGSEGV),
      dump("SIGSEGV at address 0x10 ",
           "exchange with rank 1, phase forward; above is the stack of the computing thread"));
}

TEST(StackDump, AStackOverflowIsToldToo) {
  EXPECT_EXIT(
      {
        become_rank();
        std::exit(recurse(0));
      },
      KilledBySignal(SIGSEGV), dump("SIGSEGV at address 0x[0-9a-f]+ ", "no communication, phase start"));
}

TEST(StackDump, AFileThatBecameShorterIsABusError) {
  EXPECT_EXIT(
      {
        become_rank();
        std::FILE* const file = std::tmpfile();
        const int fd = fileno(file);
        const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        void* const memory = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        write_to(static_cast<int*>(memory));
      },
      KilledBySignal(SIGBUS), dump("SIGBUS at address 0x[0-9a-f]+ ", "no communication"));
}

TEST(StackDump, SignalsThatWereRaisedKillToo) {
  for (const auto& [signal, name] : {std::pair{SIGABRT, "SIGABRT"}, {SIGFPE, "SIGFPE"}, {SIGILL, "SIGILL"}}) {
    struct sigaction now{};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_DFL) continue;  // has a handler of a sanitizer
    EXPECT_EXIT(
        {
          become_rank();
          raise(signal);
        },
        KilledBySignal(signal), std::string("cp-pool-worker: rank 3: ") + name + " in no communication");
  }
}

TEST(StackDump, AnotherThreadShowsItsOwnStack) {
  EXPECT_EXIT(
      {
        become_rank();
        std::thread([] { std::abort(); }).join();
      },
      KilledBySignal(SIGABRT), "rank 3: SIGABRT in .*; above is the stack of a thread other than the computing thread");
}

TEST(StackDump, AHandlerThatIsThereStays) {
  EXPECT_EXIT(
      {
        std::signal(SIGABRT, [](int) { _exit(5); });
        become_rank();
        std::abort();
      },
      ExitedWithCode(5), "");
}

TEST(StackDump, OnRequestTheProcessGoesOn) {
  EXPECT_EXIT(
      {
        become_rank();
        raise(SIGUSR2);
        _exit(0);
      },
      ExitedWithCode(0), "rank 3: in no communication, phase start; above is the stack of the computing thread");
}

}  // namespace
}  // namespace cp_pool
