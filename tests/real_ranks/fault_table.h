// The table of faults that a real rank can have (--inject): each kind, in rank 0 and in rank 1, at each phase, with the
// expected outcome of the case, the expected end of its pool and the expected outcome of the next case.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace cp_pool::test {

struct FaultRow {
  std::string kind;  // as --inject takes it
  int rank = 0;
  std::string phase;
};

// "exit=3@1:inside".
std::string name_of(const FaultRow& row);

// What is allowed. A timeout comes at the worker's or the driver's deadline, every other outcome at once. There are
// several values where the death of a process races with a line that it has just written.
struct FaultExpectation {
  std::set<std::string> outcomes;
  std::set<std::string> retired;  // why the pool was retired after the case; "" if it was not
  bool no_answer = false;         // in the phase diagnosis: the diagnosis fails in any case
  std::set<std::string> next;     // the outcome of the next case; the case after that always passes
};
FaultExpectation expectation_of(const FaultRow& row);

std::vector<std::string> fault_kinds();
std::vector<std::string> gpu_fault_kinds();                  // the kinds that are tested on GPUs
std::vector<FaultRow> whole_table(const std::string& kind);  // both ranks at every phase that the kind has
// Some rows of a kind. The rows of all kinds together cover every phase in both ranks and every way to end.
std::vector<FaultRow> covering_rows(const std::string& kind);

}  // namespace cp_pool::test
