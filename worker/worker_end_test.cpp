// Tests of when and how the ranks of the real worker end.
#include <csignal>
#include <functional>

#include <gmock/gmock.h>

#include "worker/testing/worker_fixture.h"

namespace cp_pool::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

using WorkerEnd = Worker;

// Starts so many ranks, uses them, and expects that each of them ends well.
void expect_good_end(int ranks, const std::function<void(WorkerGroup&)>& use) {
  const std::vector<std::string> well(static_cast<std::size_t>(ranks), "exit 0");
  std::optional<std::vector<std::string>> statuses = well;
  for (int i = 0; i < kTriesToRecover && statuses && (i == 0 || *statuses != well); ++i) {
    ReadyGroup group({.ranks = ranks});
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
  ReadyGroup group(with({"--inject", "hang@1:inside"}));
  group.start_run("hangs");
  group.next<protocol::StartedEvent>();
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
    ReadyGroup group(with({"--inject", fault}));
    group.start_run("busy");
    group.next<protocol::StartedEvent>();
    group.kill(0, SIGKILL);
    EXPECT_EQ(group.wait_all(kEndLimit).value().at(0), "signal 9") << fault;
  }
}

TEST_F(WorkerEnd, ARankThatFailsOutsideACaseDies) {
  for (const char* fault : {"throw@1:result", "bad_alloc@1:idle"}) {
    ReadyGroup group(with({"--inject", fault}));
    group.start_run("one");
    EXPECT_EQ(group.wait_for_exit(1), "exit 1") << fault;
    EXPECT_THAT(group.read_stderr(1), HasSubstr("rank 1: the computing thread failed: std::"));
  }
}

TEST_F(WorkerEnd, DiesHalfWayThroughAResultIfAskedTo) {
  ReadyGroup group(with({"--inject", "exit=3@0:result"}));
  EXPECT_THROW(group.run("bad"), std::runtime_error);
  EXPECT_EQ(group.wait_all(kEndLimit).value().at(0), "exit 3");
  EXPECT_THAT(group.rest_of_stdout(), StartsWith("[CP_POOL_RESP] {"));
}

TEST_F(WorkerEnd, DiesBeforeItIsReadyIfAskedTo) {
  WorkerGroup group(with({"--inject", "exit=127@1:start"}));
  EXPECT_EQ(group.wait_for_exit(1), "exit 127");
  group.close_stdin();
  EXPECT_TRUE(group.wait_all(kEndLimit).has_value()) << "rank 0 waits for rank 1 no longer";
}

TEST_F(WorkerEnd, SpeaksOnlyItsOwnProtocolVersion) {
  WorkerGroup group({.environment = {{"CP_POOL_PROTOCOL", "7..9"}}});
  EXPECT_THAT(group.next<protocol::ProtocolErrorEvent>().message, HasSubstr("7..9"));
  const std::string expected = "exit " + std::to_string(protocol::kExitNoCommonVersion);
  EXPECT_EQ(group.wait_all(kEndLimit), (std::vector<std::string>(2, expected)));
}

TEST_F(WorkerEnd, ABrokenEnvironmentIsAUsageError) {
  WorkerGroup group({.ranks = 1, .environment = {{"RANK", "one"}}});
  EXPECT_EQ(group.wait_all(kEndLimit), std::vector<std::string>{"exit 2"});
  EXPECT_THAT(group.read_stderr(0), HasSubstr("RANK=\"one\""));
}

}  // namespace
}  // namespace cp_pool::test
