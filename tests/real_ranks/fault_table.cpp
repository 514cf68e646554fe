#include "tests/real_ranks/fault_table.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include <fmt/format.h>

namespace cp_pool::test {
namespace {

constexpr std::array<std::string_view, 6> kPhases{"before", "inside", "after", "result", "idle", "diagnosis"};

bool is_one_of(std::string_view kind, std::initializer_list<std::string_view> kinds) {
  return std::ranges::find(kinds, kind) != kinds.end();
}

bool is_during_the_case(const FaultRow& row) {
  return row.phase == "before" || row.phase == "inside" || row.phase == "after";
}

// The rank dies at once.
FaultExpectation of_death(const FaultRow& row) {
  if (row.phase != "idle") return {.outcomes = {"crash"}, .retired = {"crash"}, .next = {"pass"}};
  // Rank 0 may die before its I/O thread has written the result.
  return {.outcomes = row.rank == 0 ? std::set<std::string>{"pass", "crash"} : std::set<std::string>{"pass"},
          .retired = {"crash", "died_after_result"},
          .next = {"pass"}};
}

// A rank that hangs between two cases is noticed only by the next case.
FaultExpectation of_hang(const FaultRow& row) {
  if (row.phase != "idle") {
    // A rank that waits in a collective can be freed, if there is time between the worker's and the driver's deadline.
    return {.outcomes = {"timeout"},
            .retired = {"timeout", "unhealthy", row.kind == "wait" ? "" : "unhealthy"},
            .next = {"pass"}};
  }
  // A rank 0 that is stopped may not have written the result.
  if (row.kind == "sigstop" && row.rank == 0) {
    return {.outcomes = {"pass", "timeout"}, .retired = {"", "timeout"}, .next = {"pass", "timeout"}};
  }
  return {.outcomes = {"pass"}, .retired = {""}, .next = {"timeout"}};
}

bool is_harmless(const FaultRow& row) {
  return is_one_of(row.kind, {"print", "print_err", "setsid", "daemon", "slow=100"});
}

// The rank throws, and the pool can recover.
bool throws(const FaultRow& row) {
  return is_one_of(row.kind, {"throw", "bad_alloc", "oom", "flaky=1"});
}

// The result has been sent before the fault, and stands.
FaultExpectation of_diagnosis(const FaultRow& row) {
  FaultExpectation out{.outcomes = {"fail"}, .retired = {""}, .next = {"pass"}};
  if (is_harmless(row)) {
    out.retired = {"", "unhealthy"};  // the diagnosis may be late
    return out;
  }
  out.no_answer = true;
  if (row.kind == "wait") {
    out.retired = {"", "unhealthy", "timeout"};
  } else if (is_one_of(row.kind, {"hang", "spin", "deaf", "sigstop"})) {
    out.retired = {"unhealthy", "timeout"};
  } else if (!throws(row)) {
    out.retired = {"died_after_result"};
  }
  return out;
}

const FaultExpectation kHarmless{.outcomes = {"pass"}, .retired = {""}, .next = {"pass"}};

}  // namespace

std::string name_of(const FaultRow& row) {
  return fmt::format("{}@{}:{}", row.kind, row.rank, row.phase);
}

FaultExpectation expectation_of(const FaultRow& row) {
  if (row.phase == "diagnosis") return of_diagnosis(row);
  if (is_harmless(row)) return kHarmless;
  if (row.kind == "wrong") return {.outcomes = {"fail"}, .retired = {""}, .next = {"pass"}};
  if (is_one_of(row.kind, {"hang", "spin", "deaf", "sigstop"})) return of_hang(row);
  if (row.kind == "wait" && is_during_the_case(row)) return of_hang(row);
  if (throws(row) && is_during_the_case(row)) return {.outcomes = {"error"}, .retired = {""}, .next = {"pass"}};
  return of_death(row);
}

std::vector<std::string> fault_kinds() {
  return {"throw", "bad_alloc", "sigsegv", "sigabrt",   "sigkill", "sigstop", "exit=0", "exit=3",  "hang",    "spin",
          "deaf",  "wait",      "print",   "print_err", "setsid",  "daemon",  "wrong",  "flaky=1", "slow=100"};
}

std::vector<std::string> gpu_fault_kinds() {
  return {"throw", "sigkill", "hang", "sigstop", "oom"};
}

std::vector<FaultRow> whole_table(const std::string& kind) {
  std::vector<FaultRow> rows;
  for (const int rank : {0, 1}) {
    for (const std::string_view phase : kPhases) {
      FaultRow row{kind, rank, std::string{phase}};
      // Outside a case there is no collective to wait in, and only the phase inside can make a result wrong.
      if (kind == "wait" && !is_during_the_case(row) && phase != "diagnosis") continue;
      if (kind == "wrong" && row.phase != "inside") continue;
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::vector<FaultRow> covering_rows(const std::string& kind) {
  static const std::map<std::string, std::vector<std::pair<int, std::string>>> rows{
      {"throw", {{0, "inside"}, {1, "before"}, {1, "result"}, {1, "idle"}, {1, "diagnosis"}}},
      {"bad_alloc", {{1, "inside"}, {0, "after"}}},
      {"sigsegv", {{0, "before"}, {1, "inside"}}},
      {"sigabrt", {{0, "result"}}},
      {"sigkill", {{0, "inside"}, {1, "inside"}, {1, "idle"}, {0, "diagnosis"}}},
      {"sigstop", {{1, "inside"}, {0, "idle"}}},
      {"oom", {{0, "before"}, {1, "inside"}}},
      {"exit=0", {{1, "result"}}},
      {"exit=3", {{0, "after"}, {0, "idle"}}},
      {"hang", {{0, "inside"}, {1, "idle"}, {1, "diagnosis"}}},
      {"spin", {{1, "after"}}},
      {"deaf", {{0, "result"}}},
      {"wait", {{1, "before"}}},
      {"print", {{0, "before"}, {1, "after"}}},
      {"print_err", {{1, "before"}, {0, "result"}}},
      {"setsid", {{1, "inside"}}},
      {"daemon", {{0, "idle"}}},
      {"wrong", {{0, "inside"}, {1, "inside"}}},
      {"flaky=1", {{0, "before"}, {1, "inside"}}},
      {"slow=100", {{0, "result"}, {1, "inside"}, {0, "diagnosis"}}},
  };
  std::vector<FaultRow> out;
  for (const auto& [rank, phase] : rows.at(kind)) out.push_back({kind, rank, phase});
  return out;
}

}  // namespace cp_pool::test
