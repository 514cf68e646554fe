// Faults that a user requests (--inject, CP_POOL_INJECT), and their syntax. fault_injector.h fires them.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool {

// Written as kind@rank:phase[:case], e.g. "throw@1:inside:te-flash/*" or "exit=3@0:before". Without a case glob the
// fault fires once in every case of the rank.
struct Fault {
  enum class Kind {
    throw_error,  // throw: throws std::runtime_error
    bad_alloc,    // throws std::bad_alloc
    oom,          // asks for more memory than the rank's GPU has; on a CPU the same as bad_alloc
    sigsegv,
    sigabrt,
    sigkill,
    sigstop,    // every thread of the rank stops
    exit,       // exit=N: _exit(N); N is 0 if left out
    hang,       // the thread sleeps for ever
    spin,       // the thread computes for ever
    deaf,       // as hang, with SIGTERM ignored
    wait,       // waits in an all-reduce that no other rank joins
    print,      // print=N: N bytes to stdout in lines, then goes on; N is 10 MiB if left out
    print_err,  // print_err=N: the same to stderr
    setsid,     // leaves a child in a session of its own that ignores signals and holds the rank's pipes, then goes on
    daemon,     // leaves a double-forked daemon, then goes on
    wrong,      // wrong=TENSOR: the attention's result TENSOR (`out` if left out) is changed before it is verified
    flaky,      // flaky=P or flaky=P,SEED: throws with probability P, drawn for each attempt of a case
    slow,       // slow=MS: sleeps for MS milliseconds, then goes on
  };
  enum class Phase {
    start,   // before the rank connects; the case glob has no effect here
    before,  // after the reset of the rank's state, before anything else of the case
    // Instead of the case's first communication, in which the peers then wait. The barrier that closes the case counts.
    inside,
    after,      // after the answer is verified, before the barrier that closes the case
    result,     // rank 0: after half of the result line is written; other ranks: instead of the report to rank 0
    idle,       // after the rank has reported
    diagnosis,  // at the beginning of the diagnosis of a failed case
  };
  Kind kind = Kind::throw_error;
  std::optional<int> argument;  // N of exit, print and print_err; milliseconds of slow
  std::string tensor;           // TENSOR of wrong
  double probability = 1;       // P of flaky
  std::uint64_t seed = 0;       // SEED of flaky
  int rank = 0;
  Phase phase = Phase::before;
  std::string case_glob = "*";
};

// Special TENSORs of `wrong`: the result `out` or `dq` is changed in the repetition of the step only.
inline constexpr std::string_view kRepeatedOut = "repeat";
inline constexpr std::string_view kRepeatedDq = "repeat_dq";

class FaultSyntaxError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

Fault parse_fault(std::string_view text);                // throws FaultSyntaxError
std::vector<Fault> parse_faults(std::string_view text);  // separated by white space; throws FaultSyntaxError
// Returns the fault as --inject takes it, without the case glob: "exit=3@0:before".
std::string to_string(const Fault& fault);

// Return "throw, bad_alloc, ...", "start, before, ..." and "out, lse, ..." for the help text.
std::string list_fault_kinds();
std::string list_fault_phases();
std::string list_wrong_tensors();

}  // namespace cp_pool
