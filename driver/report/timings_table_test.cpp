#include "driver/report/timings_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/case_phases.h"
#include "cases/testing/temporary_folder.h"
#include "driver/testing/attention.h"
#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using test::finished;

CaseFinished timed(std::size_t index, int world_size, double forward_ms) {
  CaseFinished event = finished(index, "case-" + std::to_string(index), CaseOutcome::pass);
  test::attention(event.payload).cp_size = world_size;
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
  event.diagnosis = test::example_diagnosis();
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
  const std::string page = test::read_file(CP_POOL_SOURCE_DIR "/docs/performance.md");
  std::size_t place = page.find("\n| phase | what it does |");
  for (const std::string_view phase : case_phase::kOfACase) {
    if (phase == case_phase::kBegin || phase == case_phase::kReport) continue;  // not timed
    place = page.find("\n| " + std::string{phase} + " |", place);
    ASSERT_NE(place, std::string::npos) << phase;
  }
}

}  // namespace
}  // namespace cp_pool
