#include <gmock/gmock.h>

#include "driver/report/reports.h"
#include "driver/testing/example_events.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

std::vector<std::string> annotations(const std::vector<Event>& events) {
  return github_annotations(report_of(events));
}

TEST(GithubAnnotations, ACommandEndsNeitherInItsTitleNorInItsMessage) {
  EXPECT_THAT(annotations({finished(0, "a: b, 100%\n", CaseOutcome::infra, "50%: one,\r\ntwo::end")}),
              ElementsAre(StartsWith("::error title=infra%3A a%3A b%2C 100%25%0A::50%25: one,%0D%0Atwo::end%0A")));
}

TEST(GithubAnnotations, CasesThatNoPoolCouldJudgeAreOneErrorAReason) {
  const auto lines = annotations({finished(0, "a", CaseOutcome::infra, "the pool cannot start: no license"),
                                  finished(1, "b", CaseOutcome::infra, "the pool cannot start: no license"),
                                  finished(2, "c", CaseOutcome::not_run, "interrupted")});
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_THAT(lines[0], StartsWith("::error title=infra%3A a::the pool cannot start: no license%0A"));
  EXPECT_THAT(annotations({finished(0, "a", CaseOutcome::pass)}), IsEmpty());
}

TEST(GithubAnnotations, VerdictsAreNoticesTheFirstNineAndThenACount) {
  CaseVerdict untriaged;
  untriaged.index = 11;
  untriaged.id = "other";
  std::vector<Event> events{untriaged};
  for (std::size_t i = 0; i < 11; ++i) events.emplace_back(state_leak(i, "id", "culprit/id"));
  const std::vector<std::string> lines = annotations(events);
  ASSERT_EQ(lines.size(), 10U);
  EXPECT_EQ(lines[8],
            "::notice title=verdict%3A id::verdict: STATE_LEAK (2 of 2), by culprit/id%0A"
            "  alone on a fresh pool, the case failed in the same way in 0 of 3 replays%0A"
            "  after the suspect, the case failed%0A");
  EXPECT_EQ(lines[9], "::notice title=cp-pool::2 more verdicts are not shown here; see the log and the reports");
}

}  // namespace
}  // namespace cp_pool::test
