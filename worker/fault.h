// Faults on request (--inject, CP_POOL_INJECT): what they are and how they are written. fault_injector.h fires them.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool {

// kind@rank:phase[:case], e.g. "throw@1:inside:te-flash/*" or "exit=3@0:before". Without a case glob every case of the
// rank is hit, once each.
struct Fault {
  enum class Kind {
    throw_error,  // throw: std::runtime_error
    bad_alloc,    // throw std::bad_alloc
    oom,          // asks for more memory than the rank's GPU has; on a CPU as bad_alloc
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
    wrong,      // wrong=TENSOR: the attention's result TENSOR (`out` if left out) is changed before it is verified
    flaky,      // flaky=P or P,SEED: throw with probability P, drawn anew for each attempt of a case
    slow,       // slow=MS: sleeps for so many milliseconds, then goes on
  };
  enum class Phase {
    start,      // before the rank connects; the case glob says nothing here
    before,     // after the reset, before anything else of the case
    inside,     // instead of the case's first communication (at the latest the barrier that closes it), peers sit in it
    after,      // the answer is verified, the barrier that closes the case not yet reached
    result,     // rank 0: half of the result line is written; other ranks: instead of the report to rank 0
    idle,       // after the rank reported
    diagnosis,  // of a case that failed: before anything of it
  };
  Kind kind = Kind::throw_error;
  std::optional<int> argument;  // of exit, print and print_err; milliseconds of slow
  std::string tensor;           // of wrong
  double probability = 1;       // of flaky
  std::uint64_t seed = 0;       // likewise
  int rank = 0;
  Phase phase = Phase::before;
  std::string case_glob = "*";
};

// A TENSOR of `wrong`: instead of a result, the result `out` of the repeated step alone is changed.
inline constexpr std::string_view kRepeatedStep = "repeat";

class FaultSyntaxError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

Fault parse_fault(std::string_view text);                // throws FaultSyntaxError
std::vector<Fault> parse_faults(std::string_view text);  // separated by white space; throws FaultSyntaxError
// The fault as --inject takes it, without the case: "exit=3@0:before".
std::string to_string(const Fault& fault);

// "throw, bad_alloc, ...", "start, before, ..." and "out, lse, ...": for the help text.
std::string list_fault_kinds();
std::string list_fault_phases();
std::string list_wrong_tensors();

}  // namespace cp_pool
