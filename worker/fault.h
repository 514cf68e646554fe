// Faults on request (--inject), for tests of the driver and for users who rehearse what their CI does with a failure.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool {

// kind@rank:phase[:case], e.g. "throw@1:inside:te-flash/*" or "exit=3@0:before". Without a case glob every case of the
// rank is hit.
struct Fault {
  enum class Kind {
    throw_error,  // throw: std::runtime_error
    bad_alloc,    // throw std::bad_alloc
    sigsegv,      // a write through a null pointer
    sigabrt,
    sigkill,
    sigstop,  // every thread stands still
    exit,     // exit=N: _exit(N); N is 0 if left out
    hang,     // the computing thread sleeps for ever
  };
  enum class Phase {
    before,  // after the reset, before anything else of the case
    inside,  // instead of the case's first communication (at the latest the barrier that closes it), peers sit in it
    after,   // the answer is verified, the barrier that closes the case not yet reached
    idle,    // after the case was reported
  };
  Kind kind = Kind::throw_error;
  int exit_code = 0;
  int rank = 0;
  Phase phase = Phase::before;
  std::string case_glob = "*";
};

class FaultSyntaxError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

Fault parse_fault(std::string_view text);  // throws FaultSyntaxError

// The faults of one rank. Used by its computing thread.
class FaultInjector {
 public:
  FaultInjector(const std::vector<Fault>& faults, int rank);
  void start_case(const std::string& id);
  // Fires the first fault of the running case at this phase, once a case; may throw, or not return.
  void reach(Fault::Phase phase);

 private:
  std::vector<Fault> faults_;
  std::vector<Fault> armed_;
};

}  // namespace cp_pool
