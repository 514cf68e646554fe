#include "driver/cli/history/run_diff.h"

#include <cmath>

#include <gmock/gmock.h>

#include "driver/testing/attention.h"
#include "driver/testing/example_events.h"

namespace cp_pool::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ComparedRun run_of(const std::vector<CaseFinished>& cases, const std::string& size = "small") {
  std::vector<Event> events{run_started(cases.size())};
  std::get<RunStarted>(events.front()).size = size;
  events.insert(events.end(), cases.begin(), cases.end());
  events.emplace_back(RunFinished{});
  return compared_run(events);
}

CaseFinished lasting(const std::string& id, double ms, CaseOutcome outcome = CaseOutcome::pass) {
  CaseFinished event = finished(0, id, outcome);
  event.duration_ms = ms;
  return event;
}

CaseFinished with_error(const std::string& id, double part_of_bound) {
  CaseFinished event = finished(0, id, CaseOutcome::pass);
  for (Check& check : event.checks) check.error = part_of_bound * check.bound;
  event.checks.back().error = 0;  // another rank has no error
  return event;
}

CaseFinished with_steps(const std::string& id, double ms, double min, double max) {
  CaseFinished event = timed_case(0, id, ms);
  event.perf->step_ms = {.median = ms, .min = min, .max = max};
  return event;
}

// Returns the changes as "kind id", in order.
std::vector<std::string> changes(const ComparedRun& before, const ComparedRun& after) {
  std::vector<std::string> out;
  for (const Change& change : diff_runs(before, after).changes) {
    out.push_back(std::string{name_of(change.kind)} + " " + change.id);
  }
  return out;
}

TEST(RunDiff, OfARunAndItselfIsEmpty) {
  const ComparedRun run = run_of({finished(0, "a", CaseOutcome::pass), finished(1, "b", CaseOutcome::skip)});
  EXPECT_THAT(changes(run, run), IsEmpty());
  EXPECT_EQ(diff_runs(run, run).common, 2U);
}

TEST(RunDiff, SaysWhatFailsNowAndWhatNoLongerDoes) {
  const ComparedRun before = run_of({finished(0, "a", CaseOutcome::pass), finished(1, "b", CaseOutcome::fail),
                                     finished(2, "c", CaseOutcome::timeout), finished(3, "d", CaseOutcome::infra)});
  const ComparedRun after = run_of({finished(0, "a", CaseOutcome::fail, "dq is wrong"),
                                    finished(1, "b", CaseOutcome::pass), finished(2, "c", CaseOutcome::crash),
                                    finished(3, "d", CaseOutcome::error), finished(4, "e", CaseOutcome::fail)});
  EXPECT_THAT(changes(before, after),
              ElementsAre("new-failure a", "new-failure d", "new-failure e", "fixed b", "still-failing c", "added e"));
  const Change first = diff_runs(before, after).changes.front();
  EXPECT_EQ(first.before, CaseOutcome::pass);
  EXPECT_EQ(first.after, CaseOutcome::fail);
  EXPECT_EQ(first.reason, "dq is wrong");
}

TEST(RunDiff, SaysWhatNobodyJudgedAnyMoreAndTakesItForNeitherFixedNorSkipped) {
  const ComparedRun before = run_of({finished(0, "a", CaseOutcome::pass), finished(1, "b", CaseOutcome::fail),
                                     finished(2, "c", CaseOutcome::skip), finished(3, "d", CaseOutcome::not_run)});
  const ComparedRun after = run_of({finished(0, "a", CaseOutcome::not_run), finished(1, "b", CaseOutcome::infra),
                                    finished(2, "c", CaseOutcome::cancelled), finished(3, "d", CaseOutcome::not_run)});
  EXPECT_THAT(changes(before, after), ElementsAre("not-judged a", "not-judged b", "not-judged c"));
}

TEST(RunDiff, SaysWhichSkipsCameAndWent) {
  const ComparedRun before =
      run_of({finished(0, "a", CaseOutcome::pass), finished(1, "b", CaseOutcome::skip, "no dropout"),
              finished(2, "c", CaseOutcome::fail), finished(3, "gone", CaseOutcome::pass)});
  const ComparedRun after = run_of(
      {finished(0, "a", CaseOutcome::skip), finished(1, "b", CaseOutcome::pass), finished(2, "c", CaseOutcome::skip)});
  EXPECT_THAT(changes(before, after), ElementsAre("skip-came a", "skip-came c", "skip-went b", "removed gone"));
  EXPECT_EQ(diff_runs(before, after).changes[2].reason, "no dropout");
}

TEST(RunDiff, NamesWhatIsFlaky) {
  CaseFinished once = finished(0, "b", CaseOutcome::fail);
  CaseFinished twice = finished(1, "b", CaseOutcome::pass);
  once.runs = twice.runs = twice.run = 2;
  const ComparedRun before = run_of({finished(0, "a", CaseOutcome::pass), finished(1, "b", CaseOutcome::pass)});
  const ComparedRun after = run_of({flaky_case(0, "a"), once, twice});
  EXPECT_THAT(changes(before, after), ElementsAre("new-failure b", "flaky a", "flaky b"));
}

TEST(RunDiff, HoldsDurationsAgainstTheDriftOfAllCasesAndTheirSpread) {
  std::vector<CaseFinished> before;
  std::vector<CaseFinished> after;
  // The machine is half as fast, and its times spread by some percent.
  for (int i = 0; i < 20; ++i) {
    before.push_back(lasting("case" + std::to_string(i), 200));
    after.push_back(lasting("case" + std::to_string(i), 400 + i));
  }
  EXPECT_THAT(changes(run_of(before), run_of(after)), IsEmpty());
  before.push_back(lasting("slow", 200));
  after.push_back(lasting("slow", 700));
  before.push_back(lasting("fast", 200));
  after.push_back(lasting("fast", 200));
  before.push_back(lasting("short", 1));  // three times the expected time, which is only 4 ms more
  after.push_back(lasting("short", 6));
  before.push_back(lasting("failed", 200, CaseOutcome::fail));
  after.push_back(lasting("failed", 2000));
  EXPECT_THAT(changes(run_of(before), run_of(after)), ElementsAre("fixed failed", "slower slow", "faster fast"));
  const RunDiff diff = diff_runs(run_of(before), run_of(after));
  ASSERT_TRUE(diff.drift);
  EXPECT_EQ(diff.drift->cases, 23U);
  EXPECT_NEAR(diff.drift->ratio, 2.05, 0.01);
  EXPECT_EQ(diff.changes[1].was, 200);
  EXPECT_EQ(diff.changes[1].is, 700);
}

TEST(RunDiff, TakesForNoiseWhatTheSpreadOfAllCasesExplains) {
  std::vector<CaseFinished> before;
  std::vector<CaseFinished> after;
  for (int i = 0; i < 21; ++i) {  // ratios from three quarters to four thirds
    before.push_back(lasting("case" + std::to_string(i), 300));
    after.push_back(lasting("case" + std::to_string(i), 300 * std::pow(4.0 / 3, (i - 10) / 10.0)));
  }
  before.push_back(lasting("slow", 300));
  after.push_back(lasting("slow", 800));
  EXPECT_THAT(changes(run_of(before), run_of(after)), IsEmpty());
  after.back() = lasting("slow", 9000);
  EXPECT_THAT(changes(run_of(before), run_of(after)), ElementsAre("slower slow"));
}

TEST(RunDiff, OfFewCasesKnowsNoDrift) {
  EXPECT_THAT(changes(run_of({lasting("a", 200)}), run_of({lasting("a", 290)})), IsEmpty());
  EXPECT_THAT(changes(run_of({lasting("a", 200)}), run_of({lasting("a", 310)})), ElementsAre("slower a"));
}

TEST(RunDiff, TakesTheLeastOfTheTimesOfACaseThatRanSeveralTimes) {
  EXPECT_THAT(changes(run_of({lasting("a", 200)}), run_of({lasting("a", 900), lasting("a", 210)})), IsEmpty());
}

TEST(RunDiff, TakesTheRangeOfTimedStepsForTheirNoise) {
  const ComparedRun before = run_of({with_steps("a", 10, 9.5, 10.5)});
  EXPECT_THAT(changes(before, run_of({with_steps("a", 10.8, 10.4, 11)})), IsEmpty()) << "the ranges meet";
  EXPECT_THAT(changes(before, run_of({with_steps("a", 10.8, 10.6, 11)})), ElementsAre("slower a"));
  EXPECT_THAT(changes(before, run_of({with_steps("a", 9, 8.9, 9.4)})), ElementsAre("faster a"));
  const ComparedRun steady = run_of({with_steps("a", 10, 10, 10)});
  EXPECT_THAT(changes(steady, run_of({with_steps("a", 10.4, 10.4, 10.4)})), IsEmpty()) << "4 percent are nothing";
}

TEST(RunDiff, SaysWhichErrorsGrewTowardsTheirBound) {
  EXPECT_THAT(changes(run_of({with_error("a", 0.2)}), run_of({with_error("a", 0.31)})), ElementsAre("error-grew a"));
  EXPECT_THAT(changes(run_of({with_error("a", 0.2)}), run_of({with_error("a", 0.29)})), IsEmpty());
  EXPECT_THAT(changes(run_of({with_error("a", 0.01)}), run_of({with_error("a", 0.2)})), IsEmpty()) << "far from it";
  const Change change = diff_runs(run_of({with_error("a", 0.2)}), run_of({with_error("a", 0.8)})).changes.front();
  EXPECT_EQ(change.tensor, "out");
  EXPECT_DOUBLE_EQ(change.was.value(), 0.2);
  EXPECT_DOUBLE_EQ(change.is.value(), 0.8);
}

TEST(RunDiff, ComparesNoFiguresOfOtherProblems) {
  CaseFinished other = with_error("a", 0.8);
  other.duration_ms = 9999;
  const ComparedRun before = run_of({with_error("a", 0.2)});
  EXPECT_THAT(changes(before, run_of({other}, "full")), IsEmpty());
  EXPECT_EQ(diff_runs(before, run_of({other}, "full")).why_no_figures,
            "one run is of size small, the other of size full");
  attention(other.payload).seqlen_q += 1;
  EXPECT_THAT(changes(before, run_of({other})), IsEmpty()) << "the case has the same ID and is another one";
}

}  // namespace
}  // namespace cp_pool::test
