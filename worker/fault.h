// Faults on request (--inject), for tests of the driver and for users who rehearse what their CI does with a failure.
#pragma once

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cp_pool {

// kind@rank:phase[:case], e.g. "throw@1:inside:te-flash/*" or "exit=3@0:before". Without a case glob every case of the
// rank is hit, once each.
struct Fault {
  enum class Kind {
    throw_error,  // throw: std::runtime_error
    bad_alloc,    // throw std::bad_alloc
    sigsegv,
    sigabrt,
    sigkill,
    sigstop,    // every thread stands still
    exit,       // exit=N: _exit(N); N is 0 if left out
    hang,       // the thread sleeps for ever
    spin,       // the thread computes for ever
    deaf,       // as hang, with SIGTERM ignored
    wait,       // waits in an all-reduce that no other rank joins
    print,      // print=N: N bytes to stdout in lines, then goes on; N is 10 MiB if left out
    print_err,  // print_err=N: likewise to stderr
    setsid,     // leaves a child in a session of its own that ignores signals and holds the rank's pipes, then goes on
    daemon,     // leaves a double-forked daemon, then goes on
  };
  enum class Phase {
    start,   // before the rank connects; the case glob says nothing here
    before,  // after the reset, before anything else of the case
    inside,  // instead of the case's first communication (at the latest the barrier that closes it), peers sit in it
    after,   // the answer is verified, the barrier that closes the case not yet reached
    result,  // rank 0: half of the result line is written; other ranks: instead of the report to rank 0
    idle,    // after the rank reported
  };
  Kind kind = Kind::throw_error;
  std::optional<int> argument;  // of exit, print and print_err
  int rank = 0;
  Phase phase = Phase::before;
  std::string case_glob = "*";
};

class FaultSyntaxError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

Fault parse_fault(std::string_view text);  // throws FaultSyntaxError

// "  KIND   throw, bad_alloc, ..." and "  PHASE  start, ...": for the help text.
std::string list_fault_kinds();
std::string list_fault_phases();

// The faults of one rank, for one of its threads.
class FaultInjector {
 public:
  FaultInjector(const std::vector<Fault>& faults, int rank);
  // What `wait` does: joins a collective that no other rank joins.
  void set_lonely_collective(std::function<void()> collective) { lonely_collective_ = std::move(collective); }
  void start_case(const std::string& id);
  [[nodiscard]] bool is_armed(Fault::Phase phase) const;
  // Fires the first fault of the running case at this phase, once a case; may throw, or not return.
  void reach(Fault::Phase phase);

 private:
  void fire(const Fault& fault) const;

  std::vector<Fault> faults_;
  std::vector<Fault> armed_;  // those of the running case that have not fired
  std::function<void()> lonely_collective_;
};

}  // namespace cp_pool
