// Tests of cases in which a rank of the real worker throws, hangs or is cancelled, and of the cases after them.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

// A deadline, in ms, within which any rank gets as far as the exchange on a machine on which a start takes so long.
std::int64_t deadline_after_start_of(double start_ms) {
  return std::max<std::int64_t>(1000, std::llround(4 * start_ms));
}

// The descriptors and threads of each rank after a case that passes.
std::vector<std::pair<std::int64_t, std::int64_t>> held_by_ranks(WorkerGroup& group) {
  std::vector<std::pair<std::int64_t, std::int64_t>> out;
  const auto result = group.run("passes");
  EXPECT_TRUE(result && result->outcome == CaseOutcome::pass);
  if (!result) return out;
  for (const protocol::Hygiene& rank : result->hygiene) out.emplace_back(rank.fds, rank.threads);
  return out;
}

// Runs up to `most` cases that throw on new ranks, and after each one a case whose ranks have to hold what they held at
// first. Returns how often the ranks came back before the worker asked for a new pool.
int recoveries_without_leak(WorkerGroup& group, int most) {
  const auto before = held_by_ranks(group);
  for (int i = 0; i < most; ++i) {
    const auto result = group.run(i % 2 == 0 ? "bad" : "worse");
    EXPECT_TRUE(result && result->outcome == CaseOutcome::error);
    if (!result || !result->healthy) return i;
    auto after = held_by_ranks(group);
    // The system may list a thread for a moment after it has been joined.
    const auto start = std::chrono::steady_clock::now();
    while (!after.empty() && after != before && ms_since(start) < 60'000) after = held_by_ranks(group);
    EXPECT_EQ(after, before) << "descriptors and threads of each rank after " << i + 1 << " recoveries";
    if (after != before) return i;
  }
  return most;
}

TEST_F(WorkerTrouble, RebuildsAgainAndAgainWithoutLeaking) {
  constexpr int kRecoveries = 10;
  constexpr int kInARow = 3;
  int recoveries = 0;
  int longest_row = 0;
  double start_ms = 0;
  for (int i = 0; i < kTriesToRecover && (recoveries < kRecoveries || longest_row < kInARow); ++i) {
    WorkerGroup group(with({"--inject", "throw@1:inside:bad", "--inject", "bad_alloc@2:before:worse"}, 4));
    const auto spawned = std::chrono::steady_clock::now();
    group.next<protocol::ReadyEvent>();
    start_ms = ms_since(spawned);
    const int row = recoveries_without_leak(group, kRecoveries);
    recoveries += row;
    longest_row = std::max(longest_row, row);
  }
  if (start_ms > kStartOfABusyMachine) return;
  EXPECT_GE(recoveries, kRecoveries);
  EXPECT_GE(longest_row, kInARow);
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
    std::optional<ResultEvent> result;
    // If the other rank does not come back in time either, the result does not mention the timeout.
    for (int i = 0; i < kTriesToRecover && (!result || result->outcome != CaseOutcome::timeout); ++i) {
      WorkerGroup group(with({"--inject", fault}));
      const auto spawned = std::chrono::steady_clock::now();
      group.next<protocol::ReadyEvent>();
      group.start_run("bad", {}, deadline_after_start_of(ms_since(spawned)));
      ASSERT_TRUE(group.next<protocol::StartedEvent>().has_value());
      result = group.next<ResultEvent>();  // it is the worker that ends the case: it hangs for ever
      ASSERT_TRUE(result.has_value()) << fault;
      EXPECT_FALSE(result->healthy);
      const auto refused = group.run("next");
      ASSERT_TRUE(refused.has_value());
      EXPECT_FALSE(refused->healthy);
    }
    EXPECT_EQ(result->outcome, CaseOutcome::timeout) << fault << ": " << result->reason;
  }
}

TEST_F(WorkerTrouble, ATimeoutFromInsideNamesRankOperationAndPeer) {
  std::optional<ResultEvent> result;
  // The result does not mention the timeout if rank 0 does not come back in time.
  for (int i = 0; i < kTriesToRecover && (!result || result->outcome != CaseOutcome::timeout); ++i) {
    WorkerGroup group(with({"--inject", "hang@1:inside:bad"}));
    const auto spawned = std::chrono::steady_clock::now();
    group.next<protocol::ReadyEvent>();
    result = group.run("bad", {}, deadline_after_start_of(ms_since(spawned)));
    ASSERT_TRUE(result.has_value());
  }
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
    std::optional<ResultEvent> result;
    bool as_expected = false;
    bool busy = false;
    for (int i = 0; i < kTriesToRecover && !as_expected; ++i) {
      WorkerGroup group(with({"--inject", fault}));
      const auto spawned = std::chrono::steady_clock::now();
      group.next<protocol::ReadyEvent>();
      const double start_ms = ms_since(spawned);
      busy = start_ms > kStartOfABusyMachine;
      result = group.run("bad", {}, deadline_after_start_of(start_ms));
      ASSERT_TRUE(result.has_value()) << fault;
      if (!can_be_freed) {
        EXPECT_FALSE(result->healthy) << fault;
      }
      as_expected = result->outcome == CaseOutcome::timeout && result->healthy == can_be_freed;
    }
    if (busy && !as_expected) continue;
    EXPECT_EQ(result->outcome, CaseOutcome::timeout) << fault << ": " << result->reason;
    EXPECT_EQ(result->healthy, can_be_freed) << fault << ": a rank that waits can be freed";
  }
}

}  // namespace
}  // namespace cp_pool
