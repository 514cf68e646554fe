#include "driver/report/case_text.h"

#include <gmock/gmock.h>

#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

CaseFinished run_of_case(const std::string& id, int run, int runs, CaseOutcome outcome) {
  CaseFinished event = test::finished(0, id, outcome);
  event.run = run;
  event.runs = runs;
  return event;
}

TEST(CaseRuns, SayHowOftenACaseEndedHow) {
  CaseRuns runs;
  for (int run = 1; run <= 3; ++run) {
    runs.add(run_of_case("flaky", run, 3, run == 2 ? CaseOutcome::fail : CaseOutcome::pass));
    runs.add(run_of_case("broken", run, 3, CaseOutcome::fail));
    runs.add(run_of_case("good", run, 3, CaseOutcome::pass));
    runs.add(run_of_case("wild", run, 3, run == 1 ? CaseOutcome::fail : CaseOutcome::crash));
    runs.add(run_of_case("cut short", run, 3, run == 1 ? CaseOutcome::pass : CaseOutcome::not_run));
    runs.add(run_of_case("once", 1, 1, run == 1 ? CaseOutcome::pass : CaseOutcome::fail));
  }
  EXPECT_EQ(runs.difference("flaky"), "fail in 1 of 3");
  EXPECT_EQ(runs.difference("wild"), "fail in 1, crash in 2 of 3");
  for (const char* const alike : {"broken", "good", "cut short", "once"})
    EXPECT_EQ(runs.difference(alike), "") << alike;
  EXPECT_EQ(runs.text(),
            "2 of 5 repeated: runs that ended differently\n  fail in 1 of 3: flaky\n  fail in 1, crash in 2 of 3: "
            "wild\n");
}

TEST(CaseRuns, ListTheFirstOfMany) {
  CaseRuns runs;
  for (int i = 0; i < 25; ++i) {
    runs.add(run_of_case(std::to_string(i), 1, 2, CaseOutcome::pass));
    runs.add(run_of_case(std::to_string(i), 2, 2, CaseOutcome::fail));
  }
  EXPECT_THAT(runs.text(), HasSubstr("25 of 25 repeated: runs that ended differently\n"));
  EXPECT_THAT(runs.text(), EndsWith("  and 5 more\n"));
}

}  // namespace
}  // namespace cp_pool
