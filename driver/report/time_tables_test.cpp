#include "driver/report/time_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/case_phases.h"
#include "cases/testing/temporary_folder.h"
#include "driver/testing/attention.h"
#include "driver/testing/example_events.h"

namespace cp_pool::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

CaseFinished timed(std::size_t index, int world_size, double forward_ms) {
  CaseFinished event = finished(index, "case-" + std::to_string(index), CaseOutcome::pass);
  attention(event.payload).cp_size = world_size;
  event.timings_ms = {{"forward", forward_ms}};
  return event;
}

TEST(TimingsTable, HasARowForEachWorldSizeAndPhaseAndTheSlowestCases) {
  TimingsTable table;
  table.add(timed(0, 2, 1));
  table.add(timed(1, 2, 3));
  table.add(timed(2, 4, 20));
  table.add(finished(8, "skipped", CaseOutcome::skip));
  EXPECT_EQ(table.text(),
            "ranks  phase             cases       min       p50       p95       max\n"
            "    2  forward               2    1.0 ms    3.0 ms    3.0 ms    3.0 ms\n"
            "    2  case                  2    100 ms    200 ms    200 ms    200 ms\n"
            "    4  forward               1     20 ms     20 ms     20 ms     20 ms\n"
            "    4  case                  1    300 ms    300 ms    300 ms    300 ms\n"
            "slowest\n"
            "   300 ms  case-2\n"
            "   200 ms  case-1\n"
            "   100 ms  case-0  (first use of math in its pool)\n");
}

TEST(TimingsTable, MarksTheFirstUseOfABackendAndLeavesItOutOfTheMedian) {
  TimingsTable table;
  for (std::size_t i = 0; i < 4; ++i) table.add(timed(3 - i, 2, i == 0 ? 900 : 10));
  EXPECT_THAT(table.text(), ::testing::HasSubstr("forward               4     10 ms     10 ms    900 ms    900 ms\n"));
  EXPECT_THAT(table.text(), ::testing::HasSubstr("   400 ms  case-3  (first use of math in its pool)\n"
                                                 "   300 ms  case-2\n"));
}

TEST(TimingsTable, HasTheFailuresThatMayHaveTakenLongest) {
  TimingsTable table;
  for (const CaseOutcome outcome : {CaseOutcome::pass, CaseOutcome::fail, CaseOutcome::error, CaseOutcome::timeout,
                                    CaseOutcome::crash, CaseOutcome::infra, CaseOutcome::not_run}) {
    table.add(finished(0, std::string{to_string(outcome)}, outcome));
  }
  EXPECT_THAT(table.text(),
              ::testing::EndsWith(
                  "slowest\n   100 ms  pass  (first use of math in its pool)\n   100 ms  fail\n   100 ms  error\n"
                  "   100 ms  timeout\n   100 ms  crash\n"));
}

TEST(TimingsTable, NamesThePhasesInTheOrderOfACase) {
  TimingsTable table;
  CaseFinished event = timed(0, 2, 1);
  for (const char* phase : {"an own one", "barrier", "compare", "probe", "repeat", "reset"}) {
    event.timings_ms[phase] = 1;
  }
  table.add(event);
  std::size_t last = 0;
  for (const char* phase : {"reset", "forward", "repeat", "compare", "probe", "an own one", "barrier", "case"}) {
    const std::size_t place = table.text().find(phase, last);
    ASSERT_NE(place, std::string::npos) << phase << " is missing, or comes earlier in\n" << table.text();
    last = place;
  }
}

TEST(TimingsTable, HasDiagnosesBehindTheCases) {
  TimingsTable table;
  CaseFinished event = finished(0, "a", CaseOutcome::fail);
  event.diagnosis = example_diagnosis();
  table.add(event);
  EXPECT_THAT(table.text(),
              ::testing::HasSubstr("    2  case                  1    100 ms    100 ms    100 ms    100 ms\n"
                                   "    2  diagnosis             1     12 ms     12 ms     12 ms     12 ms\n"));
}

TEST(TimingsTable, NamesNoMoreThanTenSlowCases) {
  TimingsTable table;
  for (std::size_t i = 0; i < 12; ++i) table.add(timed(i, 2, 1));
  EXPECT_THAT(table.text(), ::testing::HasSubstr("case-2\n"));
  EXPECT_THAT(table.text(), ::testing::Not(::testing::HasSubstr("case-1\n")));
}

TEST(TimingsTable, IsEmptyWhenNothingRan) {
  EXPECT_EQ(TimingsTable{}.text(), "");
}

TEST(TimingsTable, ThePhasesOfThePageAreThoseOfACase) {
  const std::string page = read_file(CP_POOL_SOURCE_DIR "/docs/performance.md");
  std::size_t place = page.find("\n| phase | what it does |");
  for (const std::string_view phase : case_phase::kOfACase) {
    if (phase == case_phase::kBegin || phase == case_phase::kReport) continue;  // not timed
    place = page.find("\n| " + std::string{phase} + " |", place);
    ASSERT_NE(place, std::string::npos) << phase;
  }
}

TEST(PerfTable, HasARowForEachTimedCase) {
  PerfTable table;
  table.add(timed_case(0, "case-a", 0.5, 0.75));
  table.add(finished(1, "untimed", CaseOutcome::pass));
  table.add(timed_case(2, "case-b", 120));
  EXPECT_EQ(table.text(),
            "       ms       min       max  TFLOP/s     GB/s  one rank effic.\n"
            "   0.5000    0.2500     1.000    123.4    5.678    0.7500  0.750  case-a\n"
            "    120.0     60.00     240.0    123.4    5.678         -      -  case-b\n"
            "a step is forward and backward; median, min and max of 9 after 2 to warm up\n"
            "1 case without efficiency: it does not fit\n");
}

TEST(PerfTable, SaysWhatAStepIs) {
  PerfTable table;
  CaseFinished inference = timed_case(0, "inference", 1);
  attention(inference.payload).training = false;
  table.add(inference);
  EXPECT_THAT(table.text(), HasSubstr("\na step is forward alone; median"));
  table.add(timed_case(1, "training", 1));
  EXPECT_THAT(table.text(), HasSubstr("\na step is forward and backward, or forward alone; median"));
}

TEST(PerfTable, ComparesEachCaseAndTheSumWithABaseline) {
  PerfTable table{"before.jsonl"};
  table.add(compared_case(0, "a", 2, 4));
  table.add(compared_case(1, "b", 15, 10));
  table.add(timed_case(2, "new", 1000, 2));
  const std::string text = table.text();
  EXPECT_THAT(text, HasSubstr("effic.  baseline  ratio\n"));
  EXPECT_THAT(text, HasSubstr(" 0.500     4.000  0.500  a\n"));
  EXPECT_THAT(text, HasSubstr("     10.00  1.500  b\n"));
  EXPECT_THAT(text, HasSubstr("         -      -  new\n"));
  EXPECT_THAT(text,
              HasSubstr("baseline before.jsonl: 2 of 3 cases in both, 17.00 ms now and 14.00 ms then: 1.214 of it\n"));
}

TEST(PerfTable, SaysThatABaselineHoldsOtherCases) {
  PerfTable table{"before.jsonl"};
  table.add(timed_case(0, "a", 2, 2));
  EXPECT_THAT(table.text(), HasSubstr("baseline before.jsonl: none of these cases is in it\n"));
}

TEST(PerfTable, IsEmptyWithoutTimes) {
  PerfTable table{"before.jsonl"};
  table.add(finished(0, "a", CaseOutcome::pass));
  EXPECT_EQ(table.text(), "");
}

TEST(PerfSummary, HasTheFiguresOfACase) {
  EXPECT_EQ(perf_summary(*timed_case(0, "a", 2, 3).perf), "2.000 ms, 123.4 TFLOP/s, 5.678 GB/s, efficiency 0.750");
  EXPECT_THAT(perf_summary(*timed_case(0, "a", 2).perf), Not(HasSubstr("efficiency")));
}

}  // namespace

}  // namespace cp_pool::test
