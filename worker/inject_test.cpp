// Faults on request that are answers: wrong, flaky and slow ones, and those that the environment asks for.
#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/testing/worker_group.h"

namespace cp_pool {
namespace {

using protocol::ResultEvent;
using test::WorkerGroup;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

WorkerGroup::Config asking_by_environment(const std::string& faults) {
  return {.environment = {{"CP_POOL_INJECT", faults}}};
}

TEST(WorkerInject, ObeysItsEnvironment) {
  WorkerGroup group(asking_by_environment("wrong=dv@1:inside:bad throw@0:before:worse"));
  group.next<protocol::ReadyEvent>();
  const auto bad = group.run("bad");
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->outcome, CaseOutcome::fail);
  EXPECT_THAT(bad->reason, StartsWith("rank 1: dv: "));
  EXPECT_TRUE(bad->healthy);
  EXPECT_EQ(group.run("worse").value_or(ResultEvent{}).outcome, CaseOutcome::error);
  EXPECT_EQ(group.run("good").value_or(ResultEvent{}).outcome, CaseOutcome::pass);
}

TEST(WorkerInject, NamesTheVariableThatItCannotRead) {
  WorkerGroup group(asking_by_environment("throw@1:inside wrong@1:after"));
  EXPECT_EQ(group.wait_for_exit(0), "exit 2");
  EXPECT_THAT(group.read_stderr(0), StartsWith("cp-pool-worker: CP_POOL_INJECT \"wrong@1:after\": wrong changes"));
}

TEST(WorkerInject, AWrongTensorThatTheCaseDoesNotHaveIsNamedAndDoesNothing) {
  WorkerGroup group({.arguments = {"--inject", "wrong=dbias@1:inside", "--inject", "wrong=dq@0:inside:forward"}});
  group.next<protocol::ReadyEvent>();
  EXPECT_EQ(group.run("plain").value_or(ResultEvent{}).outcome, CaseOutcome::pass);
  EXPECT_EQ(group.run("forward", {{"training", false}}).value_or(ResultEvent{}).outcome, CaseOutcome::pass);
  EXPECT_THAT(group.read_stderr(1), HasSubstr("rank 1: injected fault wrong=dbias: this case has no dbias"));
  EXPECT_THAT(group.read_stderr(0), HasSubstr("rank 0: injected fault wrong=dq: this case has no dq"));
}

// Outcomes of a case that runs again and again.
std::vector<CaseOutcome> outcomes_of_attempts(const std::string& fault, int attempts) {
  WorkerGroup group({.arguments = {"--inject", fault}});
  group.next<protocol::ReadyEvent>();
  std::vector<CaseOutcome> outcomes;
  for (int i = 0; i < attempts; ++i) {
    const auto result = group.run("one");
    if (!result) break;
    outcomes.push_back(result->outcome);
    if (result->outcome == CaseOutcome::pass) continue;
    EXPECT_EQ(result->outcome, CaseOutcome::error);
    EXPECT_THAT(result->reason, AllOf(StartsWith("rank 1: "), HasSubstr("injected fault flaky=0.5,3@1:inside")));
    EXPECT_TRUE(result->healthy);
  }
  return outcomes;
}

TEST(WorkerInject, AFlakyCaseFailsInSomeAttemptsTheSameEachTime) {
  const std::vector<CaseOutcome> outcomes = outcomes_of_attempts("flaky=0.5,3@1:inside", 8);
  EXPECT_THAT(outcomes, AllOf(testing::SizeIs(8), Contains(CaseOutcome::pass), Contains(CaseOutcome::error)));
  EXPECT_EQ(outcomes_of_attempts("flaky=0.5,3@1:inside", 8), outcomes);
}

TEST(WorkerInject, ASlowCaseTakesItsTimeAndPasses) {
  for (const char* phase : {"before", "inside", "after", "result"}) {
    WorkerGroup group({.arguments = {"--inject", std::string("slow=60@1:") + phase}});
    group.next<protocol::ReadyEvent>();
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(group.run("one").value_or(ResultEvent{}).outcome, CaseOutcome::pass) << phase;
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(60)) << phase;
  }
}

}  // namespace
}  // namespace cp_pool
