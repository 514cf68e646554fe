#include "driver/report/time_tables.h"

#include <gmock/gmock.h>

#include "cases/case_phases.h"
#include "cases/testing/temporary_folder.h"
#include "driver/testing/example_events.h"

namespace cp_pool::test {
namespace {

using ::testing::HasSubstr;

TEST(TimingsTable, IsEmptyWhenNothingRan) {
  EXPECT_EQ(timings_text(RunReport{}), "");
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

TEST(PerfTable, SaysThatABaselineHoldsOtherCases) {
  RunStarted header = run_started(1);
  header.baseline = "before.jsonl";
  EXPECT_THAT(perf_text(report_of({header, timed_case(0, "a", 2, 2)})),
              HasSubstr("baseline before.jsonl: none of these cases is in it\n"));
}

TEST(PerfTable, IsEmptyWithoutTimes) {
  EXPECT_EQ(perf_text(report_of({finished(0, "a", CaseOutcome::pass)})), "");
}

}  // namespace
}  // namespace cp_pool::test
