#include "driver/ledger.h"

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

}  // namespace
}  // namespace cp_pool
