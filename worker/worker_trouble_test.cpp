// Tests of cases in which a rank of the real worker throws, hangs or is cancelled, and of the cases after them.
#include <chrono>
#include <csignal>
#include <optional>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/testing/worker_fixture.h"

namespace cp_pool {
namespace {

using protocol::ResultEvent;
using test::kStartOfABusyMachine;
using test::kTriesToRecover;
using test::ms_since;
using test::WorkerGroup;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using WorkerTrouble = test::Worker;

// When a rank throws, the result says so at once, its peers are freed, and the pool goes on.
class WorkerThrow : public ::testing::TestWithParam<const char*> {};

TEST_P(WorkerThrow, ReachesTheResultLongBeforeTheDeadlineAndThePoolGoesOn) {
  for (const int culprit : {0, 1}) {
    const std::string fault = "throw@" + std::to_string(culprit) + ":" + GetParam() + ":bad";
    std::optional<WorkerGroup> started;
    std::optional<ResultEvent> result;
    double start_ms = 0;
    for (int i = 0; i < kTriesToRecover && !(result && result->healthy); ++i) {
      started.emplace(
          WorkerGroup::Config{.ranks = 2, .arguments = {"--inject", fault}, .environment = {}, .as_open_mpi = false});
      const auto spawned = std::chrono::steady_clock::now();
      started->next<protocol::ReadyEvent>();
      start_ms = ms_since(spawned);
      started->start_run("bad", {}, 20'000);
      ASSERT_TRUE(started->next<protocol::StartedEvent>().has_value());
      const auto start = std::chrono::steady_clock::now();
      result = started->next<ResultEvent>();
      EXPECT_LT(ms_since(start), 20'000 / 2);
      ASSERT_TRUE(result.has_value());
      EXPECT_EQ(result->outcome, CaseOutcome::error);
    }
    if (!result->healthy && start_ms > kStartOfABusyMachine) continue;
    WorkerGroup& group = *started;
    EXPECT_TRUE(result->healthy);
    const std::string text = "std::runtime_error: injected fault on rank " + std::to_string(culprit);
    EXPECT_EQ(result->reason, "rank " + std::to_string(culprit) + ": " + text);
    ASSERT_EQ(result->ranks.size(), 2U);
    EXPECT_EQ(result->ranks[0].rank, culprit);
    EXPECT_FALSE(result->ranks[0].ok);
    EXPECT_FALSE(result->ranks[0].aborted);
    EXPECT_THAT(result->ranks[0].error, AllOf(StartsWith(text), HasSubstr("RankCompute::run_case")));
    EXPECT_TRUE(result->ranks[1].aborted) << result->ranks[1].error;
    const auto next = group.run("next");
    ASSERT_TRUE(next.has_value());
    EXPECT_EQ(next->outcome, CaseOutcome::pass) << next->reason;
  }
}

INSTANTIATE_TEST_SUITE_P(Phases, WorkerThrow, ::testing::Values("before", "inside", "after"),
                         [](const auto& phase) { return std::string(phase.param); });

// Runs cases that throw, one after the other; returns false once the worker asks for a new pool.
bool recovers_every_time(WorkerGroup& group, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    for (const char* id : {"bad", "worse"}) {
      const auto result = group.run(id);
      EXPECT_TRUE(result && result->outcome == CaseOutcome::error);
      if (!result || !result->healthy) return false;
    }
  }
  return true;
}

TEST_F(WorkerTrouble, RebuildsAgainAndAgainWithoutLeaking) {
  bool recovered = false;
  double start_ms = 0;
  for (int i = 0; i < kTriesToRecover && !recovered; ++i) {
    WorkerGroup group(with({"--inject", "throw@1:inside:bad", "--inject", "bad_alloc@2:before:worse"}, 4));
    const auto spawned = std::chrono::steady_clock::now();
    group.next<protocol::ReadyEvent>();
    start_ms = ms_since(spawned);
    const auto before = group.run("first");
    expect_pass(before);
    recovered = recovers_every_time(group, 5);
    if (!recovered) continue;
    const auto after = group.run("last");
    expect_pass(after);
    for (std::size_t rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(after->hygiene[rank].fds, before->hygiene[rank].fds) << "rank " << rank;
      EXPECT_EQ(after->hygiene[rank].threads, before->hygiene[rank].threads) << "rank " << rank;
    }
  }
  EXPECT_TRUE(recovered || start_ms > kStartOfABusyMachine);
}

TEST_F(WorkerTrouble, APingDuringACaseSaysWhereEachRankStands) {
  WorkerGroup group(with({"--inject", "hang@1:before:bad"}));
  ASSERT_TRUE(group.next<protocol::ReadyEvent>().has_value());
  group.start_run("bad");
  ASSERT_TRUE(group.next<protocol::StartedEvent>().has_value());
  std::optional<protocol::PongEvent> pong;
  do {  // repeats until rank 0 waits for the other rank
    group.send(protocol::PingRequest{1000, true});
    pong = group.next<protocol::PongEvent>();
    ASSERT_TRUE(pong.has_value()) << "the case has ended";
    ASSERT_EQ(pong->phases.size(), 2U);
  } while (pong->phases[0].operation.empty());
  EXPECT_EQ(pong->phases[0].phase, "forward");
  EXPECT_THAT(pong->phases[0].operation, ::testing::HasSubstr("of group cp: "));
  EXPECT_GE(pong->phases[0].ms, pong->phases[0].operation_ms);
  EXPECT_EQ(pong->phases[1].phase, "begin");
  EXPECT_EQ(pong->phases[1].operation, "");
  EXPECT_GT(pong->phases[1].ms, 0);
}

TEST_F(WorkerTrouble, ARankThatCannotBeFreedMakesThePoolUnhealthyInTime) {
  for (const char* fault : {"hang@0:before:bad", "hang@1:before:bad"}) {
    WorkerGroup group(with({"--inject", fault}));
    const auto spawned = std::chrono::steady_clock::now();
    group.next<protocol::ReadyEvent>();
    const bool busy = ms_since(spawned) > kStartOfABusyMachine;
    group.start_run("bad", {}, 1000);
    ASSERT_TRUE(group.next<protocol::StartedEvent>().has_value());
    const auto start = std::chrono::steady_clock::now();
    const auto result = group.next<ResultEvent>();
    EXPECT_LT(ms_since(start), 20'000) << "it is the worker that ends the case: it hangs for ever";
    ASSERT_TRUE(result.has_value());
    // If the other rank does not come back in time either, the result does not mention the timeout.
    EXPECT_TRUE(result->outcome == CaseOutcome::timeout || (busy && result->outcome == CaseOutcome::error))
        << result->reason;
    EXPECT_FALSE(result->healthy);
    const auto refused = group.run("next");
    ASSERT_TRUE(refused.has_value());
    EXPECT_FALSE(refused->healthy);
  }
}

TEST_F(WorkerTrouble, ATimeoutFromInsideNamesRankOperationAndPeer) {
  WorkerGroup group(with({"--inject", "hang@1:inside:bad"}));
  group.next<protocol::ReadyEvent>();
  const auto result = group.run("bad", {}, 1000);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->outcome, CaseOutcome::timeout);
  EXPECT_THAT(result->reason, AllOf(StartsWith("rank 0: "), HasSubstr("rank 1"), HasSubstr("timed out")));
}

TEST_F(WorkerTrouble, CancelEndsACase) {
  WorkerGroup group(with({"--inject", "hang@1:inside:hangs"}));
  group.next<protocol::ReadyEvent>();
  group.start_run("hangs");
  ASSERT_TRUE(group.next<protocol::StartedEvent>().has_value());
  group.send(protocol::CancelRequest{1});
  const auto result = group.next<ResultEvent>();
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->outcome, CaseOutcome::cancelled);
}

TEST_F(WorkerTrouble, CancelOfAnotherCaseDoesNothing) {
  WorkerGroup group({});
  group.next<protocol::ReadyEvent>();
  expect_pass(group.run("one"));
  group.send(protocol::CancelRequest{1});
  expect_pass(group.run("two"));
}

TEST_F(WorkerTrouble, SaysWhereItStandsWhenAsked) {
  WorkerGroup group(with({"--inject", "hang@1:inside:hangs"}));
  group.next<protocol::ReadyEvent>();
  group.start_run("hangs");
  ASSERT_TRUE(group.next<protocol::StartedEvent>().has_value());
  for (int rank = 0; rank < 2; ++rank) {
    // A rank may not have reached the exchange yet when it is asked first.
    const std::string place = "rank " + std::to_string(rank) + ": in exchange with rank";
    const bool found = group.ask_until_stderr_has(rank, SIGUSR2, place);
    EXPECT_TRUE(found && group.wait_for_stderr(rank, "[CP_POOL_MODULE] cp-pool-worker ")) << group.read_stderr(rank);
    EXPECT_TRUE(group.wait_for_stderr(rank, "stack of the computing thread,")) << group.read_stderr(rank);
  }
}

TEST_F(WorkerTrouble, GoesOnAfterItSaidWhereItStands) {
  WorkerGroup group({});
  group.next<protocol::ReadyEvent>();
  for (int rank = 0; rank < 2; ++rank) {
    group.kill(rank, SIGUSR2);
    EXPECT_TRUE(group.wait_for_stderr(rank, "in no communication"));
  }
  expect_pass(group.run("next"));
}

TEST_F(WorkerTrouble, ARankThatHangsOnTheCpuOrAloneInACollectiveIsATimeout) {
  for (const char* fault : {"spin@1:before", "wait@1:inside", "wait@0:before"}) {
    const bool can_be_freed = std::string(fault).starts_with("wait");
    bool healthy = false;
    for (int i = 0; i < (can_be_freed ? kTriesToRecover : 1) && !healthy; ++i) {
      WorkerGroup group(with({"--inject", fault}));
      const auto spawned = std::chrono::steady_clock::now();
      group.next<protocol::ReadyEvent>();
      const bool busy = ms_since(spawned) > kStartOfABusyMachine;
      const auto result = group.run("bad", {}, 1000);
      ASSERT_TRUE(result.has_value()) << fault;
      healthy = result->healthy;
      if (can_be_freed && !healthy && busy) return;  // the other faults would fare no better on a busy machine
      EXPECT_EQ(result->outcome, CaseOutcome::timeout) << fault << ": " << result->reason;
    }
    EXPECT_EQ(healthy, can_be_freed) << "a rank that waits can be freed";
  }
}

}  // namespace
}  // namespace cp_pool
