#include "driver/reporters/told_failures.h"

#include <gtest/gtest.h>

#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

CaseFinished thrown(std::size_t index, const std::string& id, const std::string& function, const std::string& address) {
  CaseFinished event = test::finished(index, id, CaseOutcome::error, "rank 1: cannot map " + address);
  event.ranks = {{{},
                  1,
                  /*ok=*/false,
                  /*aborted=*/false,
                  "cannot map\nthrown from:\n  #0 " + function + "(int) in /w/x\n  #1 main in /w/x\n"}};
  return event;
}

TEST(ToldFailures, AreTheSameIfOutcomeReasonAndThrowSiteAre) {
  ToldFailures told;
  EXPECT_EQ(told.first_like(thrown(0, "a", "send", "0x7fa0")), "");
  EXPECT_EQ(told.first_like(thrown(1, "b", "send", "0x12")), "a") << "addresses make no difference";
  EXPECT_EQ(told.first_like(thrown(2, "c", "receive", "0x12")), "") << "thrown elsewhere";
  EXPECT_EQ(told.first_like(thrown(3, "d", "receive", "0x12")), "c");
  CaseFinished other = thrown(4, "e", "send", "0x12");
  other.reason = "rank 1: cannot unmap";
  EXPECT_EQ(told.first_like(other), "");
  other.outcome = CaseOutcome::crash;
  EXPECT_EQ(told.first_like(other), "");
}

TEST(ToldFailures, AreNotTheSameIfTheirFiguresDiffer) {
  ToldFailures told;
  CaseFinished wrong = test::failed_case(0, "a");
  EXPECT_EQ(told.first_like(wrong), "");
  wrong.checks[1].error = 0.5;
  EXPECT_EQ(told.first_like(wrong), "");
}

TEST(ToldFailures, AreNotTheSameIfTheirCausesDiffer) {
  ToldFailures told;
  CaseFinished wrong = test::failed_case(0, "a");
  wrong.diagnosis = test::example_diagnosis();
  EXPECT_EQ(told.first_like(wrong), "");
  EXPECT_EQ(told.first_like(wrong), "a");
  wrong.diagnosis->cause = "the mask is missing";
  EXPECT_EQ(told.first_like(wrong), "");
}

// With --repeat only the first failure of a case is diagnosed.
TEST(ToldFailures, AreTheSameIfOnlyTheFirstHasACause) {
  ToldFailures told;
  CaseFinished wrong = test::failed_case(0, "a");
  wrong.diagnosis = test::example_diagnosis();
  EXPECT_EQ(told.first_like(wrong), "");
  EXPECT_EQ(told.first_like(test::failed_case(1, "b")), "a");
}

TEST(ToldFailures, OfATimeoutWhereEachRankStoodCounts) {
  ToldFailures told;
  CaseFinished timeout = test::finished(0, "a", CaseOutcome::timeout, "no result within 5000 ms");
  timeout.stderr_tails = {{.rank = 1, .text = "poll\nrank 1: in exchange\n", .fenced = true}};
  EXPECT_EQ(told.first_like(timeout), "");
  EXPECT_EQ(told.first_like(timeout), "a");
  timeout.stderr_tails[0].text = "poll\nrank 1: in all_gather\n";
  EXPECT_EQ(told.first_like(timeout), "");
}

PoolRetired not_started(int generation, const std::string& detail) {
  PoolRetired event = test::pool_retired(RetireReason::start_failed, detail);
  event.pool.generation = generation;
  return event;
}

TEST(ToldFailures, OfPoolsThatDidNotStartWhoDiedBesideMakesNoDifference) {
  ToldFailures told;
  EXPECT_EQ(told.first_like(not_started(1, "rank 0 died: exit 1; last words of rank 0: port 4711 is taken")), "");
  EXPECT_EQ(told.first_like(
                not_started(2, "rank 1 died: exit 1; rank 0 died: exit 1; last words of rank 0: port 12 is taken")),
            "cpu/2 #1");
  EXPECT_EQ(told.first_like(not_started(3, "rank 0 died: exit 1; last words of rank 0: no memory")), "");
  EXPECT_EQ(told.untold_part(
                "the pool failed to start 3 times running: rank 0 died: exit 1; last words of rank 0: no memory"),
            "the pool failed to start 3 times running");
  EXPECT_EQ(told.untold_part("the pool cannot start: nobody knows"), "the pool cannot start: nobody knows");
  EXPECT_EQ(told.untold_part("3 cases running timed out"), "3 cases running timed out");
}

TEST(ToldFailures, SayWhyTheirPoolIsGivenUp) {
  ToldFailures told;
  const PoolRetired retired = test::pool_retired(RetireReason::crash, "rank 1 died: exit 3");
  EXPECT_FALSE(told.says_why(retired));
  told.first_like(test::finished(0, "a", CaseOutcome::crash, "rank 1 died: exit 3 (in forward)"));
  EXPECT_TRUE(told.says_why(retired));
  EXPECT_FALSE(told.says_why(test::pool_retired(RetireReason::crash, "rank 0 died: exit 3")));
}

}  // namespace
}  // namespace cp_pool
