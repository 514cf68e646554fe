#include "driver/reporters/case_tries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using test::finished;
using test::flaky_case;
using test::tried;
using ::testing::HasSubstr;

TEST(CaseTries, ListsWhatPassedOnALaterTryWithEachTry) {
  CaseTries tries;
  tries.add(tried(0, "a", CaseOutcome::crash));
  tries.add(tried(0, "a", CaseOutcome::timeout));
  tries.add(flaky_case(0, "a"));
  tries.add(finished(1, "b", CaseOutcome::pass));
  EXPECT_EQ(tries.text(),
            "1 flaky: passed on a later try (--retries)\n"
            "  a: flaky: crash, timeout, then pass on try 3\n");
  EXPECT_EQ(tries.of(0).size(), 2U);
  EXPECT_TRUE(tries.of(1).empty());
}

TEST(CaseTries, CountsWhatWasRunAgainInVain) {
  CaseTries tries;
  tries.add(tried(0, "a", CaseOutcome::crash));
  const CaseFinished last = finished(0, "a", CaseOutcome::error);
  tries.add(last);
  EXPECT_EQ(tries.text(), "1 case run again (--retries) without a pass\n");
  EXPECT_EQ(tries_text(last, tries.of(0)), "crash, then error on try 2");
}

TEST(CaseTries, AreNothingWhereNoCaseWasRunAgain) {
  CaseTries tries;
  tries.add(finished(0, "a", CaseOutcome::crash));
  EXPECT_EQ(tries.text(), "");
}

TEST(CaseTries, OfManyFlakyCasesNamesTheFirst) {
  CaseTries tries;
  for (std::size_t i = 0; i < 23; ++i) {
    tries.add(tried(i, "a", CaseOutcome::crash));
    tries.add(flaky_case(i, "a"));
  }
  EXPECT_THAT(tries.text(), HasSubstr("23 flaky"));
  EXPECT_THAT(tries.text(), HasSubstr("  and 3 more\n"));
}

}  // namespace
}  // namespace cp_pool
