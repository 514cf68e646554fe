#include <gmock/gmock.h>

#include "driver/report/reports.h"
#include "driver/testing/example_events.h"

namespace cp_pool::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MarkdownSummary, FitsWhatGithubTakesAndSaysWhatIsLeftOut) {
  std::vector<Event> events{run_started(1000)};
  for (std::size_t i = 0; i < 1000; ++i) {
    CaseFinished failed = failed_case(i, "case-" + std::to_string(i) + std::string(200, 'x'));
    failed.reason = std::to_string(i) + std::string(40000, '|');
    failed.checks.back().tensor = "tensor " + std::to_string(i);  // each failure is of another kind
    failed.stderr_tails = {{.rank = 0, .text = std::string(4096, '`'), .fenced = true}};
    events.emplace_back(failed);
  }
  events.emplace_back(run_finished({0, 1000, 0, 0, 0, 0, 0, 0, 0}));
  const std::string text = markdown_report(report_of(events));
  EXPECT_LT(text.size(), std::size_t{1} << 20U);
  EXPECT_GT(text.size(), std::size_t{500} << 10U) << "the room is used";
  EXPECT_THAT(text, AllOf(HasSubstr("### 1000 failed\n"), HasSubstr("\nand 800 more\n"),
                          HasSubstr(" more do not fit here.\n"), HasSubstr("### Slowest\n")));
}

}  // namespace
}  // namespace cp_pool::test
