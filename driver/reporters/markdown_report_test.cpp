#include "driver/reporters/markdown_report.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/reporters/reported_run.h"
#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using test::example_diagnosis;
using test::failed_case;
using test::finished;
using test::pool_retired;
using test::run_finished;
using test::run_started;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string written(const std::vector<Event>& events) {
  ReportedRun run;
  for (const Event& event : events) run.on_event(event);
  return markdown_report(run.report());
}

TEST(MarkdownSummary, HasCountsFailuresSlowestReasonsAndNotices) {
  RunStarted run = run_started(4);
  run.rerun_failed = "cp-pool run --rerun-failed e";
  CaseFinished diagnosed = failed_case(1, "b|1");
  diagnosed.diagnosis = example_diagnosis();
  CaseFinished other = failed_case(2, "c");
  other.reason = "dk is wrong on rank 0";
  CaseProgress slow;
  slow.id = "a";
  slow.pool = {"cpu/2", 1};
  slow.running_ms = 10000;
  slow.timeout_ms = 90000;
  slow.slow = true;
  const std::string text =
      written({run, slow, finished(0, "a", CaseOutcome::pass), diagnosed, other,
               finished(3, "d", CaseOutcome::skip, "no bias yet"), pool_retired(RetireReason::crash, "rank 1 <died>"),
               run_finished({1, 2, 1, 0, 0, 0, 0, 0, 0})});
  EXPECT_THAT(text, StartsWith("## cp-pool: te-flash (small) on cpu, implementation: own\n\n"
                               "**4 expanded = 1 pass + 2 fail + 1 skip, 41.2 s**\n\n"
                               "| pass | fail | skip |\n|---:|---:|---:|\n| 1 | 2 | 1 |\n\n"
                               "### 2 failed\n\n"));
  EXPECT_THAT(text, HasSubstr("| fail | `b\\|1` | rank 1: dq | 0.031 / 0.012 | cause: the window's left edge is 63 "
                              "instead of 64 on all ranks |\n"));
  EXPECT_THAT(text, HasSubstr("| fail | `c` | rank 1: dq | 0.031 / 0.012 | dk is wrong on rank 0 |\n"));
  EXPECT_THAT(text, HasSubstr("<details><summary>fail c</summary>\n\n```text\ndk is wrong on rank 0\n"));
  EXPECT_THAT(text, HasSubstr("Rerun:\n\n```text\ncp-pool run --matrix te-flash --size small --filter c\n```\n"));
  EXPECT_THAT(text, HasSubstr("Rerun all of them:\n\n```text\ncp-pool run --rerun-failed e\n```\n"));
  EXPECT_THAT(text, HasSubstr("### Slowest\n\n| time | case |\n|---:|---|\n| 300 ms | `c` |\n"));
  EXPECT_THAT(text, HasSubstr("1 skip: no bias yet\n"));
  EXPECT_THAT(text, AllOf(HasSubstr("- slow: a has been running for 10.0 s on pool cpu/2 \\#1"),
                          HasSubstr("- pool cpu/2 \\#1 given up after 3 cases: crash: rank 1 &#60;died&#62;\n")));
}

TEST(MarkdownSummary, OfEqualFailuresTheFirstHasDetails) {
  const std::string text =
      written({run_started(2), failed_case(0, "a"), failed_case(1, "b"), run_finished({0, 2, 0, 0, 0, 0, 0, 0, 0})});
  EXPECT_THAT(text, AllOf(HasSubstr("| fail | `b` | rank 1: dq | 0.031 / 0.012 | the same as `a` |\n"),
                          HasSubstr("<summary>fail a</summary>"), Not(HasSubstr("<summary>fail b</summary>"))));
}

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
  const std::string text = written(events);
  EXPECT_LT(text.size(), std::size_t{1} << 20U);
  EXPECT_GT(text.size(), std::size_t{500} << 10U) << "the room is used";
  EXPECT_THAT(text, AllOf(HasSubstr("### 1000 failed\n"), HasSubstr("\nand 800 more\n"),
                          HasSubstr(" more do not fit here.\n"), HasSubstr("### Slowest\n")));
}

TEST(MarkdownSummary, AnInterruptedRunSaysSo) {
  RunFinished end = run_finished({1, 0, 0, 0, 0, 0, 0, 1, 0});
  end.interrupted = true;
  EXPECT_THAT(written({run_started(2), finished(0, "a", CaseOutcome::pass), end}),
              AllOf(HasSubstr("Interrupted: the run was stopped before its end.\n"), Not(HasSubstr("failed"))));
}

}  // namespace
}  // namespace cp_pool
