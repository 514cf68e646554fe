#include "driver/report/case_text.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/testing/example_events.h"
#include "worker/protocol/diagnosis_intake.h"

namespace cp_pool {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::StartsWith;

TEST(FailureDetails, NameReasonRankTensorFiguresAndErrorText) {
  EXPECT_EQ(failure_details(test::failed_case(0, "id")),
            "dq is wrong on rank 1\n"
            "rank 1: dq: error 0.031 > bound 0.012 at [0, 17, 3] (baseline 0.005, max_abs 0.04, rms 0.001)\n"
            "rank 0 error:\n"
            "  first line\n"
            "  second line\n");
}

TEST(FailureDetails, SayOnceWhatReasonCheckAndRankAllSay) {
  CaseFinished event = test::finished(0, "id", CaseOutcome::fail, "rank 1: dq: 3 rows are wrong");
  event.checks = {test::failed_case(0, "id").checks[1]};
  event.checks[0].message = "3 rows are wrong";
  event.ranks = {{{}, 1, /*ok=*/false, /*aborted=*/false, "dq: 3 rows are wrong"},
                 {{}, 0, /*ok=*/false, /*aborted=*/false, "rank 0: exchange: aborted"}};
  EXPECT_EQ(failure_details(event),
            "rank 1: dq: 3 rows are wrong; error 0.031 > bound 0.012 at [0, 17, 3] (baseline 0.005, max_abs 0.04, rms "
            "0.001)\n"
            "rank 0: exchange: aborted\n");
  event = test::finished(0, "id", CaseOutcome::error, "rank 1: std::runtime_error: boom");
  event.ranks = {{{},
                  1,
                  /*ok=*/false,
                  /*aborted=*/false,
                  "std::runtime_error: boom\nthrown from:\n  #0 f(int) in /w/x\n  #1 main in /w/x\n"}};
  EXPECT_EQ(failure_details(event), "rank 1: std::runtime_error: boom\nrank 1 error:\n  thrown from:\n    #0 f (x)\n");
}

TEST(StderrDetails, FoldLinesThatDifferInDigitsAlone) {
  CaseFinished event;
  event.stderr_tails = {{.rank = 0, .text = "try 1\ntry 2\ntry 3\ndone\nat 7\nat 8\n\n\n\n", .fenced = true}};
  EXPECT_EQ(stderr_details(event),
            "rank 0 stderr:\n"
            "  | try 1\n"
            "  | [and 2 more lines that differ in digits alone]\n"
            "  | done\n  | at 7\n  | at 8\n  | \n  | \n  | \n");
}

// Such a rank may have answered before the others failed.
TEST(FailureDetails, LeaveOutWhatARankThatIsRightSays) {
  CaseFinished event = test::failed_case(0, "id");
  event.ranks[1].error = "the barrier failed";
  EXPECT_EQ(failure_details(event), failure_details(test::failed_case(0, "id")));
}

TEST(StderrDetails, ShowEveryRanksTailAndSayWhichIsUnfenced) {
  EXPECT_EQ(stderr_details(test::failed_case(0, "id")),
            "rank 0 stderr:\n"
            "  | hello from rank 0\n"
            "rank 1 stderr (unfenced):\n"
            "  | one\n"
            "  | two\n");
}

TEST(CheckText, DoesNotClaimAnExcessWhereTheMessageIsTheFault) {
  Check check;
  check.tensor = "out";
  check.rank = 3;
  check.error = std::numeric_limits<double>::quiet_NaN();
  check.bound = 1;
  check.ok = false;
  check.message = "NaN in 3 rows";
  EXPECT_EQ(check_text(check),
            "rank 3: out: NaN in 3 rows; error nan against bound 1 at [] (baseline 0, max_abs 0, rms 0)");
}

TEST(CheckText, IsTheMessageAloneIfNothingWasMeasured) {
  Check check;
  check.tensor = "repeat";
  check.rank = 1;
  check.error = check.bound = check.baseline = check.max_abs = check.rms = std::numeric_limits<double>::quiet_NaN();
  check.ok = false;
  check.message = "does not repeat: the same step again gave other bits: dq in 3 of 64 rows";
  EXPECT_EQ(check_text(check),
            "rank 1: repeat: does not repeat: the same step again gave other bits: dq in 3 of 64 rows");
}

TEST(CheckText, SaysNothingOfFiguresThatWereNotTold) {
  Check check;
  check.tensor = "out";
  check.measured = false;
  check.ok = false;
  EXPECT_EQ(check_text(check), "rank 0: out: no error and bound given");
  check.message = "all zero";
  EXPECT_EQ(check_text(check), "rank 0: out: all zero; no error and bound given");
}

TEST(FailureDetails, NameTheCauseFirst) {
  CaseFinished event = test::failed_case(0, "id");
  event.diagnosis = test::example_diagnosis();
  EXPECT_EQ(failure_details(event),
            "cause: the window's left edge is 63 instead of 64 on all ranks (explains out, dq within bounds)\n"
            "  rows 64 and later are wrong\n"
            "  queries 64..127 (rank 1) did not see keys 0..63 (rank 0)\n"
            "  in all 64 pairs of a query and a key are missing, 0 in excess\n"
            "dq is wrong on rank 1\n"
            "rank 1: dq: error 0.031 > bound 0.012 at [0, 17, 3] (baseline 0.005, max_abs 0.04, rms 0.001)\n"
            "rank 0 error:\n"
            "  first line\n"
            "  second line\n");
}

TEST(FailureDetails, SayBehindTheChecksThatNoCauseIsKnown) {
  CaseFinished event = test::failed_case(0, "id");
  event.diagnosis = protocol::unknown_diagnosis("only dq is wrong");
  EXPECT_THAT(failure_details(event), StartsWith("dq is wrong on rank 1\n"));
  EXPECT_THAT(failure_details(event), HasSubstr("rms 0.001)\ncause: unknown: only dq is wrong\n"));
}

TEST(FailureDetails, DoNotRepeatAsTheErrorOfARankWhatACheckSays) {
  CaseFinished event = test::failed_case(0, "id");
  for (Check& check : event.checks) check.message = "error beyond the bound in 3 of 8 rows";
  event.ranks = {{{}, 1, /*ok=*/false, /*aborted=*/false, "dq: error beyond the bound in 3 of 8 rows"}};
  const std::string details = failure_details(event);
  EXPECT_EQ(details.find("in 3 of 8 rows"), details.rfind("in 3 of 8 rows")) << details;
}

CaseFinished run_of_case(const std::string& id, int run, int runs, CaseOutcome outcome) {
  CaseFinished event = test::finished(0, id, outcome);
  event.run = run;
  event.runs = runs;
  return event;
}

TEST(CaseName, NumbersTheRunsOfACaseThatHasSeveral) {
  EXPECT_EQ(case_name(run_of_case("a", 2, 3, CaseOutcome::pass)), "a (run 2 of 3)");
  EXPECT_EQ(case_name(run_of_case("a", 1, 1, CaseOutcome::pass)), "a");
}

TEST(EarlierRunsText, CountsThoseOfOneOutcome) {
  CaseFinished event;
  EXPECT_EQ(earlier_runs_text(event), "");
  event.earlier = {{.run = "1", .outcome = CaseOutcome::pass, .duration_ms = 1},
                   {.run = "2", .outcome = CaseOutcome::pass, .duration_ms = 1},
                   {.run = "3", .outcome = CaseOutcome::fail, .duration_ms = 1},
                   {.run = "4", .outcome = CaseOutcome::pass, .duration_ms = 1}};
  EXPECT_EQ(earlier_runs_text(event), "earlier runs: 2 pass, 1 fail, 1 pass (the oldest first)\n");
}

TEST(FirstRunText, SaysWhatCameOfTheFirst) {
  CaseFinished event = test::finished(0, "a", CaseOutcome::pass);
  EXPECT_EQ(first_run_text(event), "");
  event.first_run = FirstRun{.outcome = CaseOutcome::fail, .reason = "dq is wrong\nand more"};
  EXPECT_EQ(first_run_text(event), "first run: fail: dq is wrong");
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

TEST(ChecksTable, HasARowForEachTensorAndRank) {
  auto checks = test::failed_case(0, "id").checks;
  checks[1].message = "3 rows are wrong";
  EXPECT_EQ(checks_table(checks),
            "tensor     rank            error     bound  ratio  baseline   max_abs       rms  worst row\n"
            "out           0  ok        0.001     0.002   0.50     0.001     0.001    0.0001  [0, 1, 2]\n"
            "dq            1  WRONG     0.031     0.012   2.58     0.005      0.04     0.001  [0, 17, 3]  "
            "3 rows are wrong\n");
}

TEST(ChecksTable, GivesNoRatioThatIsNoNumber) {
  Check check;
  check.tensor = "lse";
  check.error = std::numeric_limits<double>::quiet_NaN();
  check.ok = false;
  EXPECT_EQ(checks_table({check}).substr(91),
            "lse           0  WRONG       nan         0      -         0         0         0  []\n");
}

TEST(ChecksTable, ShowsNoFiguresThatWereNotTold) {
  Check check;
  check.tensor = "lse";
  check.measured = false;
  EXPECT_EQ(checks_table({check}).substr(91),
            "lse           0  ok            -         -      -         0         0         0  []\n");
}

}  // namespace

}  // namespace cp_pool
