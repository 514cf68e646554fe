// A rank that dies of a signal, or that a deadline ends, leaves its stack; the driver's event names functions and
// lines.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/real_ranks/driver_run.h"

namespace cp_pool::test {
namespace {

using nlohmann::json;
using namespace ::testing;

json the_case_with(const std::string& fault, const std::string& timeout = "60s") {
  DriverRun run({"run", "--matrix", "quick", "--filter", "quick/causal/p2p/cp2/bshd/fp32", "--no-progress", "--timeout",
                 timeout, "--worker", fmt::format("'{}' --inject {}", CP_POOL_WORKER_BINARY, fault)});
  EXPECT_EQ(run.wait(), 100) << run.output();
  return of_type(run.events(), "case_finished").at(0);
}

std::string stderr_of(const json& finished, int rank) {
  return finished.at("stderr").at(static_cast<std::size_t>(rank)).at("text").get<std::string>();
}

// Expects a stack with names of functions and with lines of our sources, among them the line of the fault.
void expect_named_stack(const std::string& text) {
  EXPECT_THAT(text, ContainsRegex("  #[0-9]+ cp_pool::FaultInjector::fire.* at .*worker/fault[a-z_]*\\.cpp:[0-9]+\n"));
  EXPECT_THAT(text,
              ContainsRegex("  #[0-9]+ cp_pool::RankCompute::run_case.* at .*worker/rank_compute\\.cpp:[0-9]+\n"));
  EXPECT_THAT(text, Not(HasSubstr("[CP_POOL_MODULE] cp-pool-worker")));
}

class CrashedRank : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(CrashedRank, LeavesItsStackWithNamesLinesAndPhase) {
  const auto [fault, signal] = GetParam();
  for (const int rank : {0, 1}) {
    const json finished = the_case_with(fmt::format("{}@{}:inside", fault, rank));
    EXPECT_EQ(finished.at("outcome"), "crash");
    EXPECT_THAT(finished.at("reason").get<std::string>(),
                ContainsRegex(fmt::format("rank {} died: signal [0-9]+ \\({}\\)", rank, signal)));
    const std::string text = stderr_of(finished, rank);
    expect_named_stack(text);
    EXPECT_THAT(text, HasSubstr(fmt::format("cp-pool-worker: rank {}: {} in exchange with ranks", rank, signal)));
    EXPECT_THAT(text, HasSubstr(", phase forward; above is the stack of the computing thread"));
  }
}

INSTANTIATE_TEST_SUITE_P(Signals, CrashedRank,
                         ::testing::Values(std::pair{"sigsegv", "SIGSEGV"}, std::pair{"sigabrt", "SIGABRT"}),
                         [](const auto& info) { return std::string(info.param.first); });

TEST(RankAtItsDeadline, ShowsItsStackWithNamesAndLines) {
  const json finished = the_case_with("hang@1:inside", "4s");
  EXPECT_EQ(finished.at("outcome"), "timeout");
  expect_named_stack(stderr_of(finished, 1));
}

}  // namespace
}  // namespace cp_pool::test
