#include "driver/core/ledger.h"

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

Ledger ledger_of(std::initializer_list<CaseOutcome> outcomes) {
  Ledger ledger;
  for (const CaseOutcome outcome : outcomes) ledger.record(ledger.expect(), outcome);
  return ledger;
}

TEST(Ledger, IsExactWhenEveryCaseHasOneOutcome) {
  const RunFinished finished = ledger_of({CaseOutcome::pass, CaseOutcome::skip, CaseOutcome::pass}).close(false);
  EXPECT_TRUE(finished.ledger_exact);
  EXPECT_EQ(finished.expanded, 3U);
  EXPECT_EQ(finished.counts[static_cast<std::size_t>(CaseOutcome::pass)], 2U);
  EXPECT_EQ(finished.counts[static_cast<std::size_t>(CaseOutcome::skip)], 1U);
  EXPECT_EQ(finished.exit_code, 0);
}

TEST(Ledger, IsInexactWhenACaseHasNoOutcome) {
  Ledger ledger = ledger_of({CaseOutcome::pass});
  ledger.expect();
  EXPECT_FALSE(ledger.close(false).ledger_exact);
  EXPECT_EQ(ledger.close(false).exit_code, to_int(ExitCode::internal_error));
}

TEST(Ledger, IsInexactWhenACaseHasTwoOutcomesEvenIfTheSumFits) {
  Ledger ledger;
  const std::size_t first = ledger.expect();
  ledger.expect();
  ledger.record(first, CaseOutcome::pass);
  ledger.record(first, CaseOutcome::pass);
  EXPECT_FALSE(ledger.close(false).ledger_exact);
}

TEST(Ledger, IsInexactWhenAnUnknownCaseFinishes) {
  Ledger ledger = ledger_of({CaseOutcome::pass});
  ledger.record(7, CaseOutcome::pass);
  EXPECT_FALSE(ledger.close(false).ledger_exact);
}

TEST(ExitCode, IsThatOfAnInternalErrorIfTheCountsDoNotAddUp) {
  RunFinished finished;
  finished.expanded = 2;  // one of them, a failure perhaps, was not counted
  finished.counts[static_cast<std::size_t>(CaseOutcome::pass)] = 1;
  EXPECT_EQ(exit_code(finished, {}), to_int(ExitCode::internal_error));
}

TEST(ExitCode, IsThatOfWhatWasNotJudgedForAnIncompleteReport) {
  RunFinished finished = ledger_of({CaseOutcome::pass}).close(false);
  finished.incomplete = {"shard 2 of 2 of quick is missing"};
  EXPECT_EQ(exit_code(finished, {}), to_int(ExitCode::infra));
  finished.partial = true;
  EXPECT_EQ(exit_code(finished, {}), 0);
}

TEST(ExitCode, IsTheFirstThatApplies) {
  EXPECT_EQ(ledger_of({}).close(true).exit_code, to_int(ExitCode::interrupted));
  EXPECT_EQ(ledger_of({CaseOutcome::infra, CaseOutcome::crash}).close(true).exit_code, to_int(ExitCode::interrupted));
  EXPECT_EQ(ledger_of({CaseOutcome::infra, CaseOutcome::fail}).close(false).exit_code, to_int(ExitCode::failed));
  EXPECT_EQ(ledger_of({CaseOutcome::infra, CaseOutcome::pass}).close(false).exit_code, to_int(ExitCode::infra));
  EXPECT_EQ(ledger_of({CaseOutcome::skip, CaseOutcome::pass}).close(false).exit_code, 0);
  EXPECT_EQ(ledger_of({CaseOutcome::skip, CaseOutcome::pass}).close(false, {.no_skip = true}).exit_code,
            to_int(ExitCode::infra));
  EXPECT_EQ(ledger_of({CaseOutcome::skip, CaseOutcome::fail}).close(false, {.no_skip = true}).exit_code,
            to_int(ExitCode::failed));
  EXPECT_EQ(ledger_of({CaseOutcome::pass}).close(false, {.no_skip = true}).exit_code, 0);
  const Demands judged{.some_judged = true};
  EXPECT_EQ(ledger_of({CaseOutcome::skip, CaseOutcome::skip}).close(false, judged).exit_code, to_int(ExitCode::infra));
  EXPECT_EQ(ledger_of({CaseOutcome::skip, CaseOutcome::pass}).close(false, judged).exit_code, 0);
  EXPECT_EQ(ledger_of({}).close(false, judged).exit_code, 0);
}

TEST(ExitCode, IsAFailureForEachWayToFailAndForACaseThatWasNotRun) {
  for (const CaseOutcome outcome :
       {CaseOutcome::fail, CaseOutcome::error, CaseOutcome::timeout, CaseOutcome::crash, CaseOutcome::not_run}) {
    EXPECT_EQ(ledger_of({CaseOutcome::pass, outcome}).close(false).exit_code, to_int(ExitCode::failed))
        << to_string(outcome);
  }
}

TEST(ExitCode, IsNoFailureForWhatWasExpectedToFailUnlessItHadToAndPassed) {
  const auto code = [](CaseOutcome outcome, bool strict, bool expected = true) {
    Ledger ledger;
    CaseFinished finished;
    finished.outcome = outcome;
    if (expected) finished.expected = Expected{.reason = "known", .strict = strict};
    ledger.record(ledger.expect(), outcome);
    ledger.note_expected(finished);
    return ledger.close(false).exit_code;
  };
  EXPECT_EQ(code(CaseOutcome::fail, false, false), to_int(ExitCode::failed));
  for (const CaseOutcome outcome : {CaseOutcome::fail, CaseOutcome::error, CaseOutcome::timeout, CaseOutcome::crash}) {
    EXPECT_EQ(code(outcome, true), 0) << to_string(outcome);
  }
  EXPECT_EQ(code(CaseOutcome::pass, false), 0);
  EXPECT_EQ(code(CaseOutcome::pass, true), to_int(ExitCode::failed));
  EXPECT_EQ(code(CaseOutcome::not_run, false), to_int(ExitCode::failed)) << "nobody knows whether it fails";
  EXPECT_EQ(code(CaseOutcome::infra, false), to_int(ExitCode::infra));
}

TEST(ExitCode, OfASkipThatWasAskedForIsNoneOfNoSkip) {
  Ledger ledger = ledger_of({CaseOutcome::skip, CaseOutcome::pass});
  EXPECT_EQ(ledger.close(false, {.no_skip = true}).exit_code, to_int(ExitCode::infra));
  CaseFinished skipped;
  skipped.outcome = CaseOutcome::skip;
  skipped.expected = Expected{.outcome = CaseOutcome::skip, .reason = "no room"};
  ledger.note_expected(skipped);
  EXPECT_EQ(ledger.close(false, {.no_skip = true}).exit_code, 0);
  EXPECT_EQ(ledger.close(false).expected_skips, 1U);
  EXPECT_EQ(ledger_of({CaseOutcome::skip}).close(false, {.some_judged = true}).exit_code, to_int(ExitCode::infra));
}

TEST(ExitCode, OfOneExpectedFailureAndAnotherIsThatOfTheOther) {
  Ledger ledger = ledger_of({CaseOutcome::fail, CaseOutcome::fail});
  CaseFinished expected;
  expected.outcome = CaseOutcome::fail;
  expected.expected = Expected{.reason = "known"};
  ledger.note_expected(expected);
  EXPECT_EQ(ledger.close(false).exit_code, to_int(ExitCode::failed));
  EXPECT_EQ(ledger.close(false).expected_failures, 1U);
}

}  // namespace
}  // namespace cp_pool
