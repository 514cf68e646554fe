// The fault table (fault_table.h) with the real driver and real ranks. For each row the test checks the outcome and its
// time, the stderr tail, the two cases that follow, the pool, that no process is left, and that the ledger is exact. By
// default it runs some rows of each kind. CP_POOL_FAULT_TABLE=whole runs all rows and prints what was seen
// (docs/reliability.md).
#include "tests/real_ranks/fault_table.h"

#include <algorithm>
#include <map>
#include <ostream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/driver/harness.h"
#include "tests/real_ranks/driver_run.h"

namespace cp_pool::test {
namespace {

using driver_test::processes_left;
using driver_test::TemporaryPath;
using nlohmann::json;
using namespace ::testing;

// CP_POOL_FAULT_DEVICE is the device of the ranks. Deadlines on GPUs are longer, because the first case of a pool loads
// its kernels.
constexpr bool kOnGpus = std::string_view{CP_POOL_FAULT_DEVICE} == "cuda";
constexpr double kTimeoutMs = kOnGpus ? 4000 : 1600;  // where ranks hang until it
constexpr double kLongTimeoutMs = 20'000;             // where nothing waits for it
constexpr double kFromInside = 0.9;                   // the worker's own deadline, as a fraction of the driver's
// A machine on which the start of a pool takes longer, in ms, is taken for busy.
constexpr double kStartOfABusyMachine = kOnGpus ? 6000 : 2000;
// Rows whose pool came back from an abort too late are run again, so often in all.
constexpr int kTriesToRecover = 5;
// The most time in ms from the deadline to the outcome, on the slowest machine.
constexpr double kWayToReport = 10'000;

bool want_whole_table() {
  const char* const value = std::getenv("CP_POOL_FAULT_TABLE");
  return value != nullptr && std::string_view{value} == "whole";
}

enum Part { fault, next, last, parts };

bool waits_for_the_deadline(std::string_view kind) {
  return kind == "hang" || kind == "spin" || kind == "deaf" || kind == "sigstop" || kind == "wait";
}

std::string model_of(std::size_t row, int part) {
  return fmt::format("r{:02}-{}", row, part);
}

// A matrix with a faulty case and then two clean cases for each row. All run on two ranks, in this order.
std::string matrix_of(const std::vector<FaultRow>& rows) {
  std::string models;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (int part = fault; part < parts; ++part) {
      models += fmt::format("{}\"{}\":{{}}", models.empty() ? "" : ",", model_of(row, part));
    }
  }
  const std::string problem =
      kOnGpus ? R"("backend":"cudnn","dtype":"bf16","seqlen_q":256,"seqlen_kv":256,"head_dim_qk":64,"head_dim_v":64)"
              : R"("dtype":"fp32","seqlen_q":32,"seqlen_kv":32,"head_dim_qk":8,"head_dim_v":8)";
  return R"({"suite":"faults","sizes":{"small":{}},"defaults":{"cp_size":2,"comm":"p2p","layout":"bshd","batch":1,)"
         R"("heads":2,"kv_heads":2,)" +
         problem + R"(},"models":{)" + models + "}}";
}

std::string worker_of(const std::vector<FaultRow>& rows) {
  std::string command = fmt::format("'{}'", worker_program());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const std::string glob = fmt::format("faults/{}/*", model_of(row, fault));
    command += fmt::format(" --inject {}:{}", name_of(rows[row]), glob);
    if (rows[row].phase == "diagnosis") command += " --inject wrong@0:inside:" + glob;
  }
  return command;
}

std::string text(const json& event, const char* key) {
  return event.at(key).get<std::string>();
}

// The events of a run over the rows of one kind.
class Seen {
 public:
  explicit Seen(const std::vector<json>& events) {
    for (const json& event : of_type(events, "case_finished")) {
      finished_[event.at("index").get<std::size_t>()] = event;
      slowest_case_ms_ = std::max(slowest_case_ms_, event.at("duration_ms").get<double>());
    }
    for (const json& event : of_type(events, "pool_retired")) retired_[generation(event)] = text(event, "reason");
    for (const json& event : of_type(events, "pool_ready"))
      slowest_start_ms_ = std::max(slowest_start_ms_, event.at("spawn_to_ready_ms").get<double>());
  }
  [[nodiscard]] double slowest_case_ms() const { return slowest_case_ms_; }
  [[nodiscard]] const json& finished(std::size_t row, Part part) const { return finished_.at(row * parts + part); }

  // Whether the machine is so busy that a start takes many times what it should. Then a worker may not manage to
  // connect its ranks again within the second that it has.
  [[nodiscard]] bool machine_is_busy() const { return slowest_start_ms_ > kStartOfABusyMachine; }

  // Why the pool was retired right after the faulty case; "" if the next case ran on it.
  [[nodiscard]] std::string retired_after(std::size_t row) const {
    const int pool = generation(finished(row, fault));
    return generation(finished(row, next)) == pool ? "" : retired_.at(pool);
  }

 private:
  static int generation(const json& event) { return event.at("pool").at("generation").get<int>(); }

  std::map<std::size_t, json> finished_;
  std::map<int, std::string> retired_;  // by generation
  double slowest_start_ms_ = 0;
  double slowest_case_ms_ = 0;
};

// Expects the stack of each rank in its stderr tail; a rank that is stopped cannot write it.
void expect_stacks(const FaultRow& row, const json& finished) {
  for (const json& tail : finished.at("stderr")) {
    if (row.kind == "sigstop" && tail.at("rank") == row.rank) continue;
    EXPECT_THAT(text(tail, "text"), HasSubstr("stack of the computing thread")) << "rank " << tail.at("rank");
  }
}

// Expects that a diagnosis that failed says how it failed.
void expect_diagnosis(const FaultExpectation& expected, const json& faulty) {
  ASSERT_TRUE(faulty.at("diagnosis").is_object());
  const std::string cause = text(faulty.at("diagnosis"), "cause");
  const bool failed =
      cause.starts_with("the diagnosis failed: rank ") || cause.starts_with("the diagnosis ran out of its ");
  // A rank that is only slow may be in time or too late.
  EXPECT_TRUE(failed || !expected.no_answer) << cause;
  if (failed) {
    EXPECT_EQ(faulty.at("diagnosis").at("certainty"), "unknown");
  }
}

// Whether the pool should have gone on after the case, and did not because its ranks came back too late.
bool came_back_late(const FaultRow& row, std::size_t index, const Seen& seen) {
  const std::set<std::string> expected = expectation_of(row).retired;
  return expected.contains("") && !expected.contains("unhealthy") && seen.retired_after(index) == "unhealthy";
}

void expect_row(const FaultRow& row, std::size_t index, const Seen& seen, double timeout_ms) {
  SCOPED_TRACE(name_of(row));
  FaultExpectation expected = expectation_of(row);
  if (seen.machine_is_busy() && expected.retired.contains("")) expected.retired.insert("unhealthy");
  const json& faulty = seen.finished(index, fault);
  const std::string outcome = text(faulty, "outcome");
  const double ms = faulty.at("duration_ms").get<double>();
  EXPECT_THAT(expected.outcomes, Contains(outcome)) << faulty.at("reason");
  if (outcome == "timeout") {
    EXPECT_GE(ms, kFromInside * timeout_ms);
    EXPECT_LE(ms, timeout_ms + kWayToReport);
    if (text(faulty, "reason").starts_with("no result within")) expect_stacks(row, faulty);
  } else {
    EXPECT_LT(ms, kFromInside * timeout_ms) << "no deadline has ended it";
  }
  EXPECT_EQ(outcome == "pass", text(faulty, "reason").empty());
  if (row.phase == "diagnosis") expect_diagnosis(expected, faulty);
  // The driver knows that the case has started, so a death counts as an attempt, and the case is not sent again.
  if (row.phase != "idle") {
    EXPECT_EQ(faulty.at("attempts"), 1) << faulty.at("reason");
  }
  EXPECT_THAT(expected.retired, Contains(seen.retired_after(index)));
  EXPECT_THAT(expected.next, Contains(text(seen.finished(index, next), "outcome")));
  EXPECT_EQ(text(seen.finished(index, last), "outcome"), "pass") << seen.finished(index, last).at("reason");
}

// Prints one table row per rank, "| sigsegv | 1 | crash, 56 ms, crash |..": for each phase the outcome, its time, why
// the pool was retired, and the outcome of the next case if it did not pass.
void print_rows(const std::vector<FaultRow>& rows, const Seen& seen) {
  std::map<int, std::string> lines;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::string& line = lines[rows[i].rank];
    if (line.empty()) line = fmt::format("| {} | {} |", rows[i].kind, rows[i].rank);
    const json& faulty = seen.finished(i, fault);
    const std::string retired = seen.retired_after(i);
    const std::string after = text(seen.finished(i, next), "outcome");
    line += fmt::format(" {}, {:.0f} ms{}{} |", text(faulty, "outcome"), faulty.at("duration_ms").get<double>(),
                        retired.empty() ? "" : ", " + retired, after == "pass" ? "" : "; next " + after);
  }
  for (const auto& [rank, line] : lines) fmt::print("{}\n", line);
}

// Runs the rows, and looks at all that does not depend on their faults. Returns the events.
std::vector<json> run_rows(const std::vector<FaultRow>& rows, const std::string& worker, double timeout_ms) {
  const TemporaryPath matrix("faults.json");
  std::ofstream(matrix.get()) << matrix_of(rows);
  std::vector<std::string> words = {"run",
                                    "--matrix",
                                    matrix.get(),
                                    "--device",
                                    CP_POOL_FAULT_DEVICE,
                                    "--worker",
                                    worker,
                                    "--timeout",
                                    fmt::format("{:.0f}ms", timeout_ms),
                                    "--grace",
                                    "300ms",
                                    "--no-progress"};
  // One pool at a time on any machine, so that it is known which pool a fault costs.
  if (!kOnGpus) words.insert(words.end(), {"--slots", "2"});
  DriverRun run(std::move(words));
  run.wait();

  std::vector<json> events = run.events();
  EXPECT_EQ(of_type(events, "case_finished").size(), rows.size() * parts) << run.output();
  for (const json& retired : of_type(events, "pool_retired")) EXPECT_THAT(retired.at("leftovers"), IsEmpty());
  const json end = of_type(events, "run_finished").at(0);
  EXPECT_TRUE(end.at("ledger_exact").get<bool>());
  EXPECT_EQ(end.at("expanded"), rows.size() * parts);
  EXPECT_THAT(processes_left(), IsEmpty());
  return events;
}

// The deadline of the cases of a kind. Where ranks hang until it, it is as short as this machine allows: a case in
// which no rank hangs has to end within it, the first one of a pool too.
double timeout_of(const std::string& kind) {
  if (!waits_for_the_deadline(kind)) return kLongTimeoutMs;
  const Seen clean(run_rows({{"", 0, ""}}, fmt::format("'{}'", worker_program()), kLongTimeoutMs));
  return std::max(kTimeoutMs, 10 * clean.slowest_case_ms());
}

class FaultTable : public ::testing::TestWithParam<std::string> {};

TEST_P(FaultTable, EachFaultHasItsOutcomeAndHurtsNoLaterCase) {
  if (kOnGpus && !std::filesystem::exists("/dev/nvidia0")) GTEST_SKIP() << "needs a GPU";
  std::vector<FaultRow> rows = want_whole_table() ? whole_table(GetParam()) : covering_rows(GetParam());
  ASSERT_THAT(processes_left(), IsEmpty());  // also puts the mark into the environment
  const double timeout_ms = timeout_of(GetParam());
  for (int i = 1; i <= kTriesToRecover && !rows.empty(); ++i) {
    const Seen seen(run_rows(rows, worker_of(rows), timeout_ms));
    ASSERT_FALSE(HasFailure());
    std::vector<FaultRow> again;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (i < kTriesToRecover && came_back_late(rows[row], row, seen)) {
        again.push_back(rows[row]);
      } else {
        expect_row(rows[row], row, seen, timeout_ms);
      }
    }
    if (i == 1 && want_whole_table()) print_rows(rows, seen);
    rows = std::move(again);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, FaultTable, ::testing::ValuesIn(kOnGpus ? gpu_fault_kinds() : fault_kinds()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '=');
                           return name;
                         });

struct StartFault {
  std::string name;
  std::string fault;
  std::string start_timeout;
  std::size_t tries;
  std::string reason;
};
// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest looks for PrintTo by this name
void PrintTo(const StartFault& bad, std::ostream* out) {
  *out << bad.fault;
}

class FaultAtTheStart : public ::testing::TestWithParam<StartFault> {};

TEST_P(FaultAtTheStart, MakesTheCasesInfra) {
  if (kOnGpus) GTEST_SKIP() << "the start is the same on CPUs";
  const StartFault& bad = GetParam();
  ASSERT_THAT(processes_left(), IsEmpty());
  const TemporaryPath matrix("faults.json");
  std::ofstream(matrix.get()) << matrix_of({{"", 0, ""}});
  DriverRun run({"run", "--matrix", matrix.get(), "--worker",
                 fmt::format("'{}' --inject {}", worker_program(), bad.fault), "--start-timeout", bad.start_timeout,
                 "--grace", "300ms", "--no-progress"});
  EXPECT_EQ(run.wait(), 96) << run.output();
  const std::vector<json> events = run.events();
  EXPECT_EQ(of_type(events, "pool_spawned").size(), bad.tries);
  for (const json& finished : of_type(events, "case_finished")) {
    EXPECT_EQ(finished.at("outcome"), "infra");
    EXPECT_THAT(text(finished, "reason"), HasSubstr(bad.reason));
  }
  EXPECT_TRUE(of_type(events, "run_finished").at(0).at("ledger_exact").get<bool>());
  EXPECT_THAT(processes_left(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Faults, FaultAtTheStart,
                         ::testing::Values(StartFault{"hang", "hang@1:start", "700ms", 3, "not ready within 700 ms"},
                                           StartFault{"sigkill", "sigkill@0:start", "30s", 3, "signal 9 (SIGKILL)"},
                                           StartFault{"throw", "throw@1:start", "30s", 3, "rank 1 died: exit 1"},
                                           StartFault{"exit127", "exit=127@1:start", "30s", 1, "exit 127"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cp_pool::test
