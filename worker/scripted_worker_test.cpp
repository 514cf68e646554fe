// Tests of `prepare` requests, and of cases that a library refuses, with real processes (testing/scripted_worker.cpp).
#include <csignal>

#include <gmock/gmock.h>

#include "worker/testing/worker_fixture.h"

namespace cp_pool::test {
namespace {

using protocol::ResultEvent;
using ::testing::ElementsAre;

class ScriptedWorker : public ::testing::Test {
 protected:
  static nlohmann::json case_of(const std::string& model) {
    nlohmann::json c = small_case(2);
    c["model"] = model;
    return c;
  }
  void prepare(const std::string& model) { group_.send(protocol::PrepareRequest{100, case_of(model)}); }

  // Returns for both ranks how often they have prepared for this model.
  [[nodiscard]] std::vector<int> times_prepared(const std::string& model) const {
    std::vector<int> times;
    for (int rank = 0; rank < 2; ++rank) {
      const std::string text = group_.read_stderr(rank);
      const std::string line = "prepared " + model + "\n";
      int count = 0;
      for (auto at = text.find(line); at != std::string::npos; at = text.find(line, at + 1)) ++count;
      times.push_back(count);
    }
    return times;
  }

  void expect_pass(const ResultEvent& result) {
    EXPECT_EQ(result.outcome, CaseOutcome::pass) << result.reason;
    EXPECT_EQ(result.reason, "");
    EXPECT_TRUE(result.healthy);
  }

  ReadyGroup group_{{.binary = CP_POOL_SCRIPTED_WORKER_BINARY}};
};

// Runs a case that the library refuses on the fixture's ranks, or on new ones if those did not come back in time.
class RefusedCase : public ScriptedWorker {
 protected:
  ResultEvent run_refused(const std::string& model) {
    ResultEvent result = group_.run("refused", {{"model", model}});
    for (int i = 1; i < kTriesToRecover && !result.healthy; ++i) {
      new_group_.emplace(WorkerGroup::Config{.binary = CP_POOL_SCRIPTED_WORKER_BINARY});
      result = new_group_->run("refused", {{"model", model}});
    }
    return result;
  }
  // Runs a case on the ranks of the last refused one.
  ResultEvent run_next() { return (new_group_ ? *new_group_ : group_).run("next"); }

 private:
  std::optional<ReadyGroup> new_group_;
};

using WorkerPrepare = ScriptedWorker;
using WorkerRefusal = RefusedCase;
using WorkerRehearsal = ScriptedWorker;

TEST_F(WorkerPrepare, IsOffered) {
  EXPECT_EQ(group_.ready.capabilities.at("requests"), (nlohmann::json{"cancel", "prepare"}));
}

// The running case ends only once something has been prepared, so the preparation must run beside the case on every
// rank.
TEST_F(WorkerPrepare, HappensOnceOnEveryRankBesideTheRunningCase) {
  group_.start_run("first", {{"model", "waits_for_next"}});
  prepare("second");
  expect_pass(group_.next<ResultEvent>());
  expect_pass(group_.run("second", {{"model", "second"}}));
  EXPECT_THAT(times_prepared("second"), ElementsAre(1, 1));
}

TEST_F(WorkerPrepare, FailsWithoutAnyCaseHearingOfIt) {
  group_.start_run("first", {{"model", "waits_for_next"}});
  prepare("bad");
  expect_pass(group_.next<ResultEvent>());
  group_.send(protocol::PrepareRequest{101, {{"heads", "many"}}});
  expect_pass(group_.run("bad", {{"model", "bad"}}));
  EXPECT_THAT(times_prepared("bad"), ElementsAre(1, 1));
}

TEST_F(WorkerPrepare, IsForCasesOfThisWorldSizeOnly) {
  nlohmann::json other = case_of("other");
  other["cp_size"] = 4;
  group_.send(protocol::PrepareRequest{100, other});
  group_.start_run("first", {{"model", "waits_for_next"}});
  prepare("second");
  expect_pass(group_.next<ResultEvent>());
  EXPECT_THAT(times_prepared("other"), ElementsAre(0, 0));
}

TEST_F(WorkerPrepare, WithoutEndKeepsNothingElseWaiting) {
  prepare("endless");
  for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(group_.wait_for_stderr(rank, "prepared endless"));
  group_.send(protocol::PingRequest{101, true});
  EXPECT_THAT(group_.next<protocol::PongEvent>().ranks, ElementsAre(0, 1));
  expect_pass(group_.run("next"));
  group_.send(protocol::ShutdownRequest{});
  std::optional<std::vector<std::string>> statuses = group_.wait_all(kEndLimit);
  const std::vector<std::string> well(2, "exit 0");
  for (int i = 1; i < kTriesToRecover && statuses && *statuses != well; ++i) {
    ReadyGroup again({.binary = CP_POOL_SCRIPTED_WORKER_BINARY});
    again.send(protocol::PrepareRequest{100, case_of("endless")});
    for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(again.wait_for_stderr(rank, "prepared endless"));
    again.send(protocol::ShutdownRequest{});
    statuses = again.wait_all(kEndLimit);
  }
  EXPECT_EQ(statuses, well);
}

TEST_F(WorkerPrepare, WithoutEndKeepsNoRankAliveWhenRank0Dies) {
  prepare("endless");
  for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(group_.wait_for_stderr(rank, "prepared endless"));
  group_.kill(0, SIGKILL);
  EXPECT_TRUE(group_.wait_all(kEndLimit).has_value());
}

TEST_F(WorkerRehearsal, HappensOnEveryRankAndNoCaseHearsThatItFailed) {
  for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(group_.wait_for_stderr(rank, "rehearsed\n"));
  expect_pass(group_.run("first"));
}

TEST(WorkerWithoutRehearsal, HasNone) {
  ReadyGroup group({.arguments = {"--no-rehearsal"}, .binary = CP_POOL_SCRIPTED_WORKER_BINARY});
  group.run("first");
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(group.read_stderr(rank).find("rehearsed"), std::string::npos);
}

TEST_F(WorkerRefusal, OnOneRankIsASkipInTheLibrarysWordsAndThePoolGoesOn) {
  const auto result = run_refused("refused_on_1");
  EXPECT_EQ(result.outcome, CaseOutcome::skip);
  EXPECT_EQ(result.reason, "rank 1: the library refuses these tiles");
  EXPECT_TRUE(result.healthy);
  ASSERT_EQ(result.ranks.size(), 2U);
  EXPECT_TRUE(result.ranks[1].aborted) << "rank 0 sat in a collective";
  expect_pass(run_next());
}

TEST_F(WorkerRefusal, OnWhichTheRanksDisagreeIsAnError) {
  const auto result = run_refused("skipped_on_1");
  EXPECT_EQ(result.outcome, CaseOutcome::error);
  EXPECT_EQ(result.reason, "the ranks disagree: rank 0 ran the case, but rank 1 skipped it: not on this rank");
  expect_pass(run_next());
}

TEST_F(WorkerRefusal, OnEveryRankIsASkipToo) {
  const auto result = run_refused("refused");
  EXPECT_EQ(result.outcome, CaseOutcome::skip);
  // The reason is that of the rank that reports first.
  EXPECT_THAT(result.reason,
              ::testing::AnyOf("rank 0: the library refuses these tiles", "rank 1: the library refuses these tiles"));
  EXPECT_TRUE(result.healthy);
  expect_pass(run_next());
}

TEST_F(WorkerRefusal, OfAPartThatRanAsMathShowsInTheResult) {
  const auto result = group_.run("remarked", {{"model", "remarked"}});
  expect_pass(result);
  EXPECT_EQ(result.backend_note, "some tiles ran as math");
}

}  // namespace
}  // namespace cp_pool::test
