#include "driver/cli/status_requests.h"

#include <chrono>
#include <utility>

#include <gmock/gmock.h>

#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using ::testing::ElementsAre;
using ::testing::MatchesRegex;

TEST(RunningNow, NamesCasesPoolsAgesAndPhases) {
  RunningNow view;
  view.on_event(test::run_started(9));
  view.on_event(PoolSpawned{.pool = {"cpu/2", 1}, .world_size = 2, .pids = {70, 71}});
  view.on_event(test::pool_ready());
  view.on_event(PoolSpawned{.pool = {"cpu/4", 1}, .world_size = 4});
  view.on_event(test::finished(0, "a", CaseOutcome::pass));
  CaseStarted started;
  started.index = 1;
  started.id = "b";
  started.pool = {"cpu/2", 1};
  started.attempt = 2;
  view.on_event(started);
  CaseProgress progress;
  progress.index = 1;
  progress.phase = "forward";
  view.on_event(progress);
  EXPECT_THAT(view.lines(Clock::now() + std::chrono::seconds{100}),
              ElementsAre("1 of 9 finished; 1 case running, 1 pool starting, 0 pools idle",
                          MatchesRegex("b has been running for 1 m 4. s on pool cpu/2 #1 .2 ranks, processes 70, 71., "
                                       "attempt 2, in forward for 1 m 4. s"),
                          MatchesRegex("pool cpu/4 #1 has been starting for 1 m 4. s")));
  view.on_event(test::finished(1, "b", CaseOutcome::pass));
  view.on_event(test::pool_retired(RetireReason::finished));
  EXPECT_THAT(view.lines(Clock::now()), ElementsAre("2 of 9 finished; 0 cases running, 1 pool starting, 0 pools idle",
                                                    MatchesRegex("pool cpu/4 #1 has been starting for .*")));
}

CaseProgress standing_at(std::vector<RankStanding> ranks) {
  CaseProgress progress;
  progress.index = 1;
  progress.phase = "forward";
  progress.ranks = std::move(ranks);
  return progress;
}

RankStanding stands(int rank, const std::string& phase, double ms, const std::string& operation = "",
                    double operation_ms = 0) {
  return {{.rank = rank, .phase = phase, .ms = ms, .operation = operation, .operation_ms = operation_ms}};
}

class RanksNow : public ::testing::Test {
 protected:
  void SetUp() override {
    CaseStarted started;
    started.index = 1;
    started.id = "b";
    started.pool = {"cpu/64", 1};
    view_.on_event(started);
  }

  // Returns the lines about ranks.
  std::vector<std::string> lines(std::vector<RankStanding> ranks) {
    view_.on_event(standing_at(std::move(ranks)));
    auto out = view_.lines(Clock::now());
    out.erase(out.begin(), out.begin() + 2);
    return out;
  }

  RunningNow view_;
};

TEST_F(RanksNow, ThatStandTogetherHaveOneLine) {
  std::vector<RankStanding> ranks;
  for (int rank = 0; rank < 64; ++rank) ranks.push_back(stands(rank, "forward", 3200 + rank));
  EXPECT_THAT(lines(ranks), ElementsAre("  ranks 0-63: in forward for 3.20 s"));
  ranks[7] = stands(7, "barrier", 5000, "barrier on group cp: after the case", 4000);
  EXPECT_THAT(lines(ranks),
              ElementsAre("  ranks 0-6, 8-63: in forward for 3.20 s",
                          "  rank 7: in barrier for 5.00 s, for 4.00 s in barrier on group cp: after the case"));
}

TEST_F(RanksNow, ThatWaitForTheirNeighboursInOneStepStandTogether) {
  EXPECT_THAT(
      lines({stands(0, "forward", 3000, "exchange with ranks 1 (to) and 2 (from) of group cp: k of step 2", 2000),
             stands(1, "forward", 3000, "exchange with ranks 2 (to) and 0 (from) of group cp: k of step 2", 2500),
             stands(2, "forward", 3000)}),
      ElementsAre(
          "  ranks 0, 1: in forward for 3.00 s, for 2.00 s in exchange with ranks 1 (to) and 2 (from) of group cp: "
          "k of step 2 (rank 0; the others likewise)",
          "  rank 2: in forward for 3.00 s"));
}

TEST_F(RanksNow, ThatDoNotAnswerAreNamedAndThoseThatTellNoPhaseAreNot) {
  RankStanding silent;
  silent.rank = 1;
  silent.silent = true;
  EXPECT_THAT(lines({stands(0, "", 0), silent}), ElementsAre("  rank 1: does not answer"));
}

TEST_F(RanksNow, AreForgottenWhenTheyAreAskedAnew) {
  EXPECT_TRUE(view_.answered());
  lines({stands(0, "forward", 3000)});
  view_.ask();
  EXPECT_FALSE(view_.answered());
  CaseProgress other = standing_at({});
  other.phase = "backward";
  view_.on_event(other);
  EXPECT_FALSE(view_.answered()) << "a phase that is told by itself is no answer";
  EXPECT_THAT(view_.lines(Clock::now()), ::testing::SizeIs(2));
  view_.on_event(standing_at({stands(0, "", 0)}));
  EXPECT_TRUE(view_.answered());
  view_.ask();
  view_.on_event(test::finished(1, "b", CaseOutcome::pass));
  EXPECT_TRUE(view_.answered()) << "a case that has ended answers no more";
}

}  // namespace
}  // namespace cp_pool
