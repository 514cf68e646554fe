// The table of faults that a real rank can have (--inject): each kind, in rank 0 or another, at each phase, and what
// must become of the case, of its pool and of the case after it.
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

// What is allowed; a timeout comes at a deadline, the worker's or the driver's, all else at once. Several values where
// the death of a process races with a line that it has just written.
struct FaultExpectation {
  std::set<std::string> outcomes;
  std::set<std::string> retired;  // why the pool was given up after the case; "" if it was not
  bool no_answer = false;         // phase diagnosis: that it has failed is certain
  std::set<std::string> next;     // outcome of the next case on that pool or its successor; the one after always passes
};
FaultExpectation expectation_of(const FaultRow& row);

std::vector<std::string> fault_kinds();
std::vector<std::string> gpu_fault_kinds();                  // those of the table on GPUs
std::vector<FaultRow> whole_table(const std::string& kind);  // both ranks, every phase that the kind has
// Some rows of each kind. All kinds together have every phase in either rank, and each way to end.
std::vector<FaultRow> covering_rows(const std::string& kind);

}  // namespace cp_pool::test
