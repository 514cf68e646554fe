// Tests of when and how the ranks of the real worker end.
#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/testing/worker_fixture.h"

namespace cp_pool {
namespace {

using test::kEndLimit;
using test::kTriesToRecover;
using test::WorkerGroup;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using WorkerEnd = test::Worker;

// Starts so many ranks, uses them, and expects that each of them ends well.
void expect_good_end(int ranks, const std::function<void(WorkerGroup&)>& use) {
  const std::vector<std::string> well(static_cast<std::size_t>(ranks), "exit 0");
  std::optional<std::vector<std::string>> statuses = well;
  for (int i = 0; i < kTriesToRecover && statuses && (i == 0 || *statuses != well); ++i) {
    WorkerGroup group({.ranks = ranks});
    group.next<protocol::ReadyEvent>();
    use(group);
    statuses = group.wait_all(kEndLimit);
  }
  EXPECT_EQ(statuses, well);
}

TEST_F(WorkerEnd, EndOfInputEndsEveryRank) {
  expect_good_end(4, [](WorkerGroup& group) {
    expect_pass(group.run("one"));
    group.close_stdin();
  });
}

TEST_F(WorkerEnd, EndOfInputEndsRanksThatSitInACollective) {
  WorkerGroup group(with({"--inject", "hang@1:inside"}));
  group.next<protocol::ReadyEvent>();
  group.start_run("hangs");
  ASSERT_TRUE(group.next<protocol::StartedEvent>().has_value());
  group.close_stdin();
  EXPECT_TRUE(group.wait_all(kEndLimit).has_value());
}

TEST_F(WorkerEnd, EndOfInputBeforeReadyEndsEveryRank) {
  WorkerGroup group({});
  group.close_stdin();
  EXPECT_TRUE(group.wait_all(kEndLimit).has_value());
}

TEST_F(WorkerEnd, ShutdownEndsEveryRank) {
  expect_good_end(2, [](WorkerGroup& group) { group.send(protocol::ShutdownRequest{}); });
}

TEST_F(WorkerEnd, TheOtherRanksEndWhenRank0Dies) {
  for (const char* fault : {"hang@1:before", "hang@1:inside"}) {
    WorkerGroup group(with({"--inject", fault}));
    group.next<protocol::ReadyEvent>();
    group.start_run("busy");
    ASSERT_TRUE(group.next<protocol::StartedEvent>().has_value());
    group.kill(0, SIGKILL);
    const auto statuses = group.wait_all(kEndLimit);
    ASSERT_TRUE(statuses.has_value()) << fault;
    EXPECT_EQ(statuses->at(0), "signal 9");
  }
}

TEST_F(WorkerEnd, ARankThatFailsOutsideACaseDies) {
  for (const char* fault : {"throw@1:result", "bad_alloc@1:idle"}) {
    WorkerGroup group(with({"--inject", fault}));
    group.next<protocol::ReadyEvent>();
    group.start_run("one");
    EXPECT_EQ(group.wait_for_exit(1), "exit 1") << fault;
    EXPECT_THAT(group.read_stderr(1), HasSubstr("rank 1: the computing thread failed: std::"));
  }
}

TEST_F(WorkerEnd, DiesHalfWayThroughAResultIfAskedTo) {
  WorkerGroup group(with({"--inject", "exit=3@0:result"}));
  group.next<protocol::ReadyEvent>();
  EXPECT_FALSE(group.run("bad").has_value());
  const auto statuses = group.wait_all(kEndLimit);
  ASSERT_TRUE(statuses.has_value());
  EXPECT_EQ(statuses->at(0), "exit 3");
  EXPECT_THAT(group.rest_of_stdout(), StartsWith("[CP_POOL_RESP] {"));
}

TEST_F(WorkerEnd, DiesBeforeItIsReadyIfAskedTo) {
  WorkerGroup group(with({"--inject", "exit=127@1:start"}));
  EXPECT_EQ(group.wait_for_exit(1), "exit 127");
  group.close_stdin();
  EXPECT_TRUE(group.wait_all(kEndLimit).has_value()) << "rank 0 waits for rank 1 no longer";
}

TEST_F(WorkerEnd, SpeaksOnlyItsOwnProtocolVersion) {
  WorkerGroup group({.ranks = 2, .arguments = {}, .environment = {{"CP_POOL_PROTOCOL", "7..9"}}, .as_open_mpi = false});
  const auto error = group.next<protocol::ProtocolErrorEvent>();
  ASSERT_TRUE(error.has_value());
  EXPECT_THAT(error->message, HasSubstr("7..9"));
  const std::string expected = "exit " + std::to_string(protocol::kExitNoCommonVersion);
  EXPECT_EQ(group.wait_all(kEndLimit), (std::vector<std::string>(2, expected)));
}

TEST_F(WorkerEnd, ABrokenEnvironmentIsAUsageError) {
  WorkerGroup group({.ranks = 1, .arguments = {}, .environment = {{"RANK", "one"}}, .as_open_mpi = false});
  EXPECT_EQ(group.wait_all(kEndLimit), std::vector<std::string>{"exit 2"});
  EXPECT_THAT(group.read_stderr(0), HasSubstr("RANK=\"one\""));
}

}  // namespace
}  // namespace cp_pool
