#include "worker/fault_injector.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <iterator>
#include <new>
#include <random>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "cases/glob.h"

namespace cp_pool {
namespace {

// Leaves processes behind that signals to the rank's process group do not reach, for --inject.

// A child of a process with several threads may make only async-signal-safe calls.
[[noreturn]] void live_in_a_session_of_its_own() {
  // Signals are ignored before setsid, so that a process found in its own session is known to ignore them.
  for (const int signal : {SIGTERM, SIGHUP, SIGINT, SIGUSR2}) ::signal(signal, SIG_IGN);
  ::setsid();
  for (;;) ::pause();
}

// Leaves a grandchild in a session of its own, without a parent and with closed standard streams, as daemons have.
void leave_daemon() {
  const pid_t child = ::fork();
  if (child == 0) {
    for (int fd = 0; fd < 3; ++fd) ::close(fd);
    if (::fork() == 0) live_in_a_session_of_its_own();
    _exit(0);
  }
  if (child > 0) ::waitpid(child, nullptr, 0);
}

using Kind = Fault::Kind;
using Phase = Fault::Phase;

[[noreturn]] void sleep_for_ever() {
  for (;;) pause();
}

[[noreturn]] void compute_for_ever() {
  for (volatile std::uint64_t count = 0;;) count = count + 1;
}

// Writes to the file descriptor directly, as code without stdio does.
void print_bytes(int fd, int bytes) {
  constexpr int kLine = 100;
  const std::string line = std::string(kLine - 1, '.') + "\n";
  for (int printed = 0; printed < bytes; printed += kLine) {
    if (write(fd, line.data(), line.size()) < 0) return;
  }
}

// Draws whether a flaky fault fires. The result is the same on every machine: std::seed_seq and std::mt19937_64 are
// specified to the bit, the standard distributions are not.
bool draw(const Fault& fault, const std::string& id, std::int64_t seq) {
  const std::string key = fmt::format("{} {} {} {} {}", fault.seed, fault.rank, static_cast<int>(fault.phase), seq, id);
  std::seed_seq seed(key.begin(), key.end());
  std::mt19937_64 random(seed);
  constexpr int kBitsOfDouble = 53;
  return std::ldexp(static_cast<double>(random() >> (64 - kBitsOfDouble)), -kBitsOfDouble) < fault.probability;
}

// Announces a fault that no error text names. A fault that a user has left in the environment must not look like a real
// failure.
void announce(const Fault& fault) {
  fmt::print(stderr, "cp-pool-worker: rank {}: injected fault {}\n", fault.rank, to_string(fault));
}

}  // namespace

FaultInjector::FaultInjector(const std::vector<Fault>& faults, int rank) {
  std::ranges::copy_if(faults, std::back_inserter(faults_), [rank](const Fault& f) { return f.rank == rank; });
  std::ranges::copy_if(faults_, std::back_inserter(armed_), [](const Fault& f) { return f.phase == Phase::start; });
}

bool FaultInjector::is_armed(Fault::Phase phase) const {
  return std::ranges::find(armed_, phase, &Fault::phase) != armed_.end();
}

void FaultInjector::start_case(const std::string& id, std::int64_t seq) {
  armed_.clear();
  wrong_tensors_.clear();
  for (const Fault& fault : faults_) {
    if (!glob_matches(fault.case_glob, id)) continue;
    if (fault.kind == Kind::flaky && !draw(fault, id, seq)) continue;
    if (fault.kind == Kind::wrong) {
      wrong_tensors_.push_back(fault.tensor);
    } else {
      armed_.push_back(fault);
    }
  }
}

void FaultInjector::reach(Fault::Phase phase) {
  for (;;) {
    const auto found = std::ranges::find(armed_, phase, &Fault::phase);
    if (found == armed_.end()) return;
    const Fault fault = std::move(*found);
    armed_.erase(found);
    fire(fault);
  }
}

void FaultInjector::fire(const Fault& fault) const {
  constexpr int kTenMebibytes = 10 << 20;
  switch (fault.kind) {
    case Kind::throw_error:
      throw std::runtime_error(fmt::format("injected fault on rank {}", fault.rank));
    case Kind::flaky:
      throw std::runtime_error(fmt::format("injected fault {}", to_string(fault)));
    case Kind::oom:
      if (exhaust_memory_) exhaust_memory_();
      throw std::bad_alloc();
    case Kind::bad_alloc:
      throw std::bad_alloc();
    case Kind::sigsegv:
      raise(SIGSEGV);
      return;
    case Kind::sigabrt:
      raise(SIGABRT);
      return;
    case Kind::sigkill:
      raise(SIGKILL);
      return;
    case Kind::sigstop:
      raise(SIGSTOP);
      return;
    case Kind::exit:
      _exit(fault.argument.value_or(0));
    case Kind::deaf:
      std::signal(SIGTERM, SIG_IGN);
      sleep_for_ever();
    case Kind::hang:
      sleep_for_ever();
    case Kind::spin:
      compute_for_ever();
    case Kind::wait:
      if (lonely_collective_) lonely_collective_();
      return;
    case Kind::print:
      return print_bytes(STDOUT_FILENO, fault.argument.value_or(kTenMebibytes));
    case Kind::print_err:
      return print_bytes(STDERR_FILENO, fault.argument.value_or(kTenMebibytes));
    case Kind::setsid:
      if (::fork() == 0) live_in_a_session_of_its_own();
      return;
    case Kind::daemon:
      return leave_daemon();
    case Kind::slow:
      announce(fault);
      std::this_thread::sleep_for(std::chrono::milliseconds(fault.argument.value_or(0)));
      return;
    case Kind::wrong:  // fires in a result instead: wrong_tensors()
      return;
  }
}

}  // namespace cp_pool
