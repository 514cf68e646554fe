// Tests of cases in which a rank of the real worker throws, hangs or is cancelled, and of the cases after them.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>

#include <gmock/gmock.h>

#include "worker/testing/worker_fixture.h"

namespace cp_pool::test {
namespace {

using protocol::ResultEvent;
using namespace ::testing;

using WorkerTrouble = Worker;

// When a rank throws, the result says so at once, its peers are freed, and the pool goes on.
class WorkerThrow : public ::testing::TestWithParam<const char*> {};

TEST_P(WorkerThrow, ReachesTheResultLongBeforeTheDeadlineAndThePoolGoesOn) {
  for (const int culprit : {0, 1}) {
    const std::string fault = "throw@" + std::to_string(culprit) + ":" + GetParam() + ":bad";
    std::optional<ReadyGroup> started;
    ResultEvent result;
    result.healthy = false;
    for (int i = 0; i < kTriesToRecover && !result.healthy; ++i) {
      started.emplace(WorkerGroup::Config{.arguments = {"--inject", fault}});
      started->start_run("bad", {}, 20'000);
      started->next<protocol::StartedEvent>();
      const auto start = std::chrono::steady_clock::now();
      result = started->next<ResultEvent>();
      EXPECT_LT(ms_since(start), 20'000 / 2);
      EXPECT_EQ(result.outcome, CaseOutcome::error);
    }
    if (!result.healthy && started->start_ms > kStartOfABusyMachine) continue;
    EXPECT_TRUE(result.healthy);
    const std::string text = "std::runtime_error: injected fault on rank " + std::to_string(culprit);
    EXPECT_EQ(result.reason, "rank " + std::to_string(culprit) + ": " + text);
    ASSERT_EQ(result.ranks.size(), 2U);
    EXPECT_EQ(result.ranks[0].rank, culprit);
    EXPECT_FALSE(result.ranks[0].ok);
    EXPECT_FALSE(result.ranks[0].aborted);
    EXPECT_THAT(result.ranks[0].error, AllOf(StartsWith(text), HasSubstr("RankCompute::run_case")));
    EXPECT_TRUE(result.ranks[1].aborted) << result.ranks[1].error;
    const auto next = started->run("next");
    EXPECT_EQ(next.outcome, CaseOutcome::pass) << next.reason;
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
  EXPECT_EQ(result.outcome, CaseOutcome::pass);
  for (const protocol::Hygiene& rank : result.hygiene) out.emplace_back(rank.fds, rank.threads);
  return out;
}

// Runs up to `most` cases that throw on new ranks, and after each one a case whose ranks have to hold what they held at
// first. Returns how often the ranks came back before the worker asked for a new pool.
int recoveries_without_leak(WorkerGroup& group, int most) {
  const auto before = held_by_ranks(group);
  for (int i = 0; i < most; ++i) {
    const auto result = group.run(i % 2 == 0 ? "bad" : "worse");
    EXPECT_EQ(result.outcome, CaseOutcome::error);
    if (!result.healthy) return i;
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
    ReadyGroup group(with({"--inject", "throw@1:inside:bad", "--inject", "bad_alloc@2:before:worse"}, 4));
    start_ms = group.start_ms;
    const int row = recoveries_without_leak(group, kRecoveries);
    recoveries += row;
    longest_row = std::max(longest_row, row);
  }
  if (start_ms > kStartOfABusyMachine) return;
  EXPECT_GE(recoveries, kRecoveries);
  EXPECT_GE(longest_row, kInARow);
}

TEST_F(WorkerTrouble, APingDuringACaseSaysWhereEachRankStands) {
  ReadyGroup group(with({"--inject", "hang@1:before:bad"}));
  group.start_run("bad");
  group.next<protocol::StartedEvent>();
  protocol::PongEvent pong;
  do {  // repeats until rank 0 waits for the other rank
    group.send(protocol::PingRequest{1000, true});
    pong = group.next<protocol::PongEvent>();
    ASSERT_EQ(pong.phases.size(), 2U);
  } while (pong.phases[0].operation.empty());
  EXPECT_EQ(pong.phases[0].phase, "forward");
  EXPECT_THAT(pong.phases[0].operation, ::testing::HasSubstr("of group cp: "));
  EXPECT_GE(pong.phases[0].ms, pong.phases[0].operation_ms);
  EXPECT_EQ(pong.phases[1].phase, "begin");
  EXPECT_EQ(pong.phases[1].operation, "");
  EXPECT_GT(pong.phases[1].ms, 0);
}

TEST_F(WorkerTrouble, ARankThatCannotBeFreedMakesThePoolUnhealthyInTime) {
  for (const char* fault : {"hang@0:before:bad", "hang@1:before:bad"}) {
    ResultEvent result;
    // If the other rank does not come back in time either, the result does not mention the timeout.
    for (int i = 0; i < kTriesToRecover && result.outcome != CaseOutcome::timeout; ++i) {
      ReadyGroup group(with({"--inject", fault}));
      group.start_run("bad", {}, deadline_after_start_of(group.start_ms));
      group.next<protocol::StartedEvent>();
      result = group.next<ResultEvent>();  // it is the worker that ends the case: it hangs for ever
      EXPECT_FALSE(result.healthy);
      EXPECT_FALSE(group.run("next").healthy);
    }
    EXPECT_EQ(result.outcome, CaseOutcome::timeout) << fault << ": " << result.reason;
  }
}

TEST_F(WorkerTrouble, ATimeoutFromInsideNamesRankOperationAndPeer) {
  ResultEvent result;
  // The result does not mention the timeout if rank 0 does not come back in time.
  for (int i = 0; i < kTriesToRecover && result.outcome != CaseOutcome::timeout; ++i) {
    ReadyGroup group(with({"--inject", "hang@1:inside:bad"}));
    result = group.run("bad", {}, deadline_after_start_of(group.start_ms));
  }
  EXPECT_EQ(result.outcome, CaseOutcome::timeout);
  EXPECT_THAT(result.reason, AllOf(StartsWith("rank 0: "), HasSubstr("rank 1"), HasSubstr("timed out")));
}

TEST_F(WorkerTrouble, CancelEndsACase) {
  ReadyGroup group(with({"--inject", "hang@1:inside:hangs"}));
  group.start_run("hangs");
  group.next<protocol::StartedEvent>();
  group.send(protocol::CancelRequest{1});
  EXPECT_EQ(group.next<ResultEvent>().outcome, CaseOutcome::cancelled);
}

TEST_F(WorkerTrouble, SaysWhereItStandsWhenAsked) {
  ReadyGroup group(with({"--inject", "hang@1:inside:hangs"}));
  group.start_run("hangs");
  group.next<protocol::StartedEvent>();
  for (int rank = 0; rank < 2; ++rank) {
    // A rank may not have reached the exchange yet when it is asked first.
    const std::string place = "rank " + std::to_string(rank) + ": in exchange with rank";
    const bool found = group.ask_until_stderr_has(rank, SIGUSR2, place);
    EXPECT_TRUE(found && group.wait_for_stderr(rank, "[CP_POOL_MODULE] cp-pool-worker ")) << group.read_stderr(rank);
    EXPECT_TRUE(group.wait_for_stderr(rank, "stack of the computing thread,")) << group.read_stderr(rank);
  }
}

TEST_F(WorkerTrouble, GoesOnAfterItSaidWhereItStands) {
  ReadyGroup group;
  for (int rank = 0; rank < 2; ++rank) {
    group.kill(rank, SIGUSR2);
    EXPECT_TRUE(group.wait_for_stderr(rank, "in no communication"));
  }
  expect_pass(group.run("next"));
}

TEST_F(WorkerTrouble, ARankThatHangsOnTheCpuOrAloneInACollectiveIsATimeout) {
  for (const char* fault : {"spin@1:before", "wait@1:inside", "wait@0:before"}) {
    const bool can_be_freed = std::string(fault).starts_with("wait");
    ResultEvent result;
    bool as_expected = false;
    bool busy = false;
    for (int i = 0; i < kTriesToRecover && !as_expected; ++i) {
      ReadyGroup group(with({"--inject", fault}));
      busy = group.start_ms > kStartOfABusyMachine;
      result = group.run("bad", {}, deadline_after_start_of(group.start_ms));
      if (!can_be_freed) {
        EXPECT_FALSE(result.healthy) << fault;
      }
      as_expected = result.outcome == CaseOutcome::timeout && result.healthy == can_be_freed;
    }
    if (busy && !as_expected) continue;
    EXPECT_EQ(result.outcome, CaseOutcome::timeout) << fault << ": " << result.reason;
    EXPECT_EQ(result.healthy, can_be_freed) << fault << ": a rank that waits can be freed";
  }
}

}  // namespace
}  // namespace cp_pool::test
