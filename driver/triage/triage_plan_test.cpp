#include "driver/triage/triage_plan.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

FailureToTriage failure(const std::string& kind, double ms) {
  FailureToTriage out;
  out.failure.end.outcome = CaseOutcome::fail;
  out.kind = kind;
  out.ms = ms;
  return out;
}

const CaseEnd kFails{.outcome = CaseOutcome::fail};

// The indices of the failures in the order in which they are replayed, if all of them are real.
std::vector<std::size_t> order_of(TriagePlan& plan) {
  std::vector<std::size_t> out;
  while (const auto replay = plan.next(milliseconds(0))) {
    if (out.empty() || out.back() != replay->failure) out.push_back(replay->failure);
    plan.ended(kFails);
  }
  return out;
}

TEST(TriagePlan, BeginsWithTheCheapestOfEachKind) {
  TriagePlan plan({failure("slow", 900), failure("a", 30), failure("a", 10), failure("b", 20), failure("a", 25)}, {});
  EXPECT_THAT(order_of(plan), ElementsAre(2, 3, 0, 4, 1));
  std::vector<std::size_t> decided;
  for (const auto& [number, verdict] : plan.take_verdicts()) {
    EXPECT_EQ(verdict.kind, VerdictKind::real);
    decided.push_back(number);
  }
  EXPECT_THAT(decided, ElementsAre(2, 3, 0, 4, 1));
  EXPECT_TRUE(plan.take_verdicts().empty()) << "each is told once";
}

TEST(TriagePlan, EndsWithItsReplays) {
  TriagePlan plan({failure("a", 1), failure("b", 2), failure("c", 3)}, {.replays = 3});
  order_of(plan);
  EXPECT_EQ(plan.replays(), 3);
  const auto verdicts = plan.take_verdicts();
  ASSERT_EQ(verdicts.size(), 3U);
  EXPECT_EQ(verdicts[0].second.kind, VerdictKind::real);
  EXPECT_EQ(verdicts[1].second.kind, VerdictKind::not_triaged);
  EXPECT_THAT(verdicts[1].second.evidence, ElementsAre("the limit of 3 replays in a run was reached"));
  EXPECT_EQ(verdicts[2].second.kind, VerdictKind::not_triaged);
}

TEST(TriagePlan, EndsWithItsTime) {
  TriagePlan plan({failure("a", 1), failure("b", 2)}, {.time = milliseconds(5000)});
  EXPECT_TRUE(plan.next(milliseconds(4999)));
  plan.ended(kFails);
  EXPECT_FALSE(plan.next(milliseconds(5000)));
  const auto verdicts = plan.take_verdicts();
  ASSERT_EQ(verdicts.size(), 2U);
  EXPECT_THAT(verdicts[0].second.evidence, ElementsAre("the time limit of 5 s for a triage was reached"));
  EXPECT_EQ(verdicts[0].second.kind, VerdictKind::not_triaged);
}

TEST(TriagePlan, GivesAVerdictOnTheLastReplayThatThereIs) {
  TriagePlan plan({failure("a", 1)}, {.replays = 2});
  order_of(plan);
  EXPECT_EQ(plan.take_verdicts().at(0).second.kind, VerdictKind::real);
}

TEST(TriagePlan, LeavesOutWhatReplaysTellNothingOf) {
  FailureToTriage unfit = failure("a", 1);
  unfit.unfit = "its bits differ";
  TriagePlan plan({unfit, failure("b", 2)}, {});
  EXPECT_THAT(order_of(plan), ElementsAre(1));
  const auto verdicts = plan.take_verdicts();
  EXPECT_EQ(verdicts.at(0).second.kind, VerdictKind::not_triaged);
  EXPECT_THAT(verdicts.at(0).second.evidence, ElementsAre("its bits differ"));
}

TEST(TriagePlan, CanBeStopped) {
  TriagePlan plan({failure("a", 1), failure("b", 2)}, {});
  EXPECT_TRUE(plan.next(milliseconds(0)));
  plan.stop("the run was stopped");
  EXPECT_FALSE(plan.next(milliseconds(0)));
  const auto verdicts = plan.take_verdicts();
  ASSERT_EQ(verdicts.size(), 2U);
  for (const auto& [number, verdict] : verdicts) EXPECT_THAT(verdict.evidence, ElementsAre("the run was stopped"));
}

}  // namespace
}  // namespace cp_pool
