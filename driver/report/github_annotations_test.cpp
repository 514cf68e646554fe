#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/report/reports.h"
#include "driver/testing/example_events.h"

namespace cp_pool::test {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::vector<std::string> annotations(const std::vector<Event>& events) {
  return github_annotations(report_of(events));
}

TEST(GithubAnnotations, ACommandEndsNeitherInItsTitleNorInItsMessage) {
  EXPECT_EQ(github_command("error", "a: b, 100%\n", "50%: one,\r\ntwo::end"),
            "::error title=a%3A b%2C 100%25%0A::50%25: one,%0D%0Atwo::end");
}

TEST(GithubAnnotations, TenErrorsAndASentenceForTheRest) {
  std::vector<Event> events{run_started(30)};
  for (std::size_t i = 0; i < 23; ++i) {
    events.emplace_back(finished(i, "c" + std::to_string(i), CaseOutcome::error, "reason " + std::to_string(i)));
  }
  events.emplace_back(run_finished({0, 0, 0, 23, 0, 0, 0, 0, 0}));
  const auto lines = annotations(events);
  ASSERT_THAT(lines, SizeIs(11));
  EXPECT_THAT(std::vector(lines.begin(), lines.begin() + 10), Each(StartsWith("::error title=error%3A c")));
  EXPECT_THAT(lines[10], StartsWith("::notice title=cp-pool::13 more failures are not shown here"));
}

TEST(GithubAnnotations, CasesThatNoPoolCouldJudgeAreOneErrorAReason) {
  const auto lines = annotations({finished(0, "a", CaseOutcome::infra, "the pool cannot start: no license"),
                                  finished(1, "b", CaseOutcome::infra, "the pool cannot start: no license"),
                                  finished(2, "c", CaseOutcome::not_run, "interrupted")});
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_THAT(lines[0], StartsWith("::error title=infra%3A a::the pool cannot start: no license%0A"));
  EXPECT_THAT(annotations({finished(0, "a", CaseOutcome::pass)}), IsEmpty());
}

}  // namespace
}  // namespace cp_pool::test
