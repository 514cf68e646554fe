#include "driver/report/perf_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/testing/attention.h"
#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using test::compared_case;
using test::timed_case;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(PerfTable, HasARowForEachTimedCase) {
  PerfTable table;
  table.add(timed_case(0, "case-a", 0.5, 0.75));
  table.add(test::finished(1, "untimed", CaseOutcome::pass));
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
  test::attention(inference.payload).training = false;
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
  table.add(test::finished(0, "a", CaseOutcome::pass));
  EXPECT_EQ(table.text(), "");
}

TEST(PerfSummary, HasTheFiguresOfACase) {
  EXPECT_EQ(perf_summary(*timed_case(0, "a", 2, 3).perf), "2.000 ms, 123.4 TFLOP/s, 5.678 GB/s, efficiency 0.750");
  EXPECT_THAT(perf_summary(*timed_case(0, "a", 2).perf), Not(HasSubstr("efficiency")));
}

}  // namespace
}  // namespace cp_pool
