#include "driver/log/run_report.h"

#include <gmock/gmock.h>

#include "driver/core/figures.h"
#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using namespace ::testing;

CaseStarted sent(std::size_t index, double at_ms, int generation) {
  CaseStarted event;
  event.index = index;
  event.pool = {"cpu/2", generation};
  event.at_ms = at_ms;
  return event;
}

Check nearer(const std::string& tensor) {
  Check check = test::right_check(1);
  check.tensor = tensor;
  check.error = 0.75 * check.bound;
  return check;
}

TEST(RunReport, ACaseHasItsTriesAndWhenEachWasSent) {
  CaseProgress forward;
  forward.index = 1;
  forward.phase = "forward";
  forward.running_ms = 5;
  const RunReport run = test::report_of({test::run_started(2), sent(1, 10, 1), sent(0, 11, 4), sent(1, 20, 2), forward,
                                         forward, test::tried(1, "b", CaseOutcome::crash), sent(1, 30, 3),
                                         test::flaky_case(1, "b"), test::finished(0, "a", CaseOutcome::pass)});
  ASSERT_THAT(run.cases, SizeIs(2));
  EXPECT_EQ(run.listed_cases().at(0)->end().id, "a");
  const ReportedCase& b = run.cases[0];
  ASSERT_THAT(b.tries, SizeIs(2));
  EXPECT_TRUE(b.end().flaky);
  EXPECT_EQ(b.tries[0].end.outcome, CaseOutcome::crash);
  ASSERT_THAT(b.tries[0].sent, SizeIs(2)) << "the first pool was lost";
  EXPECT_EQ(b.tries[0].sent[1].pool.generation, 2);
  EXPECT_THAT(b.tries[0].sent[1].phases, ElementsAre(std::pair(5.0, std::string("forward"))));
  ASSERT_THAT(b.tries[1].sent, SizeIs(1));
  EXPECT_EQ(b.tries[1].sent[0].at_ms, 30);
  EXPECT_EQ(run.last_ms, 30);
}

TEST(RunReport, OfAPassOnlyTheCheckOfEachRankThatIsNearestToItsBoundStays) {
  CaseFinished pass = test::finished(0, "a", CaseOutcome::pass);
  pass.checks.push_back(nearer("dq"));
  pass.hygiene = {{.rank = 0}};
  CaseFinished failed = test::failed_case(1, "b");
  failed.checks.push_back(nearer("dk"));
  const RunReport run = test::report_of({pass, failed});
  const CaseFinished& shown = run.cases[0].end();
  EXPECT_THAT(shown.hygiene, IsEmpty());
  ASSERT_THAT(shown.checks, SizeIs(2));
  EXPECT_EQ(shown.checks[1].tensor, "dq");
  EXPECT_FALSE(is_unverified_by_figures(shown));
  EXPECT_THAT(run.cases[1].end().checks, SizeIs(3));
  pass.checks[0].measured = false;
  EXPECT_TRUE(is_unverified_by_figures(test::report_of({pass}).cases[0].end()));
}

TEST(RunReport, AnEventIsOfTheLatestPoolOfItsName) {
  const PoolSpawned spawned{.pool = {"cpu/2", 1}, .world_size = 2, .at_ms = 1};
  CaseFinished pass = test::finished(0, "a", CaseOutcome::pass);
  pass.at_ms = 2;
  const RunReport run = test::report_of({spawned, spawned, test::pool_ready(), pass, test::pool_ready(2)});
  std::vector<PoolLife> lives = run.pool_lives();
  ASSERT_THAT(run.pools, SizeIs(3));
  EXPECT_FALSE(run.pools[0].ready);
  EXPECT_TRUE(run.pools[1].ready);
  EXPECT_FALSE(run.pools[2].spawned) << "its beginning is not in the file";
  ASSERT_THAT(lives, SizeIs(2));
  EXPECT_EQ(find_pool(lives, {"cpu/2", 1}), &lives[1]);
  EXPECT_EQ(find_pool(lives, {"cpu/2", 2}), nullptr);
  EXPECT_THAT(lives[0].tries, IsEmpty());
  EXPECT_THAT(lives[1].tries, ElementsAre(&run.cases[0].tries[0]));
}

}  // namespace
}  // namespace cp_pool
