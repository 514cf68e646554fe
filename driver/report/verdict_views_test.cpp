// Tests what each report says about tries and verdicts.
#include <cstdio>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/testing/temporary_folder.h"
#include "driver/report/case_text.h"
#include "driver/report/reports.h"
#include "driver/report/summary.h"
#include "driver/testing/example_events.h"

namespace cp_pool::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunReport run_with_tries_and_a_verdict() {
  CaseTried crashed = tried(1, "flaky", CaseOutcome::crash, "rank 1 died");
  crashed.stderr_tails = {{.rank = 1, .text = "last words\n", .fenced = true}};
  RunFinished end = run_finished({1, 2, 0, 0, 0, 0, 0, 0, 0});
  end.flaky = 1;
  return report_of({run_started(3), tried(0, "bad", CaseOutcome::timeout, "no result"), failed_case(0, "bad"), crashed,
                    flaky_case(1, "flaky"), failed_case(2, "leaked"), state_leak(2, "leaked", "culprit/id"), end});
}

TEST(VerdictText, SaysWhoSpoiledTheCaseAndHowOften) {
  const Verdict verdict = state_leak(0, "id", "culprit/id").verdict;
  EXPECT_EQ(verdict_text(verdict),
            "verdict: STATE_LEAK (2 of 2), by culprit/id\n"
            "  alone on a fresh pool, the case failed in the same way in 0 of 3 replays\n"
            "  after the suspect, the case failed\n");
  EXPECT_EQ(verdict_line({}), "not triaged");
}

TEST(VerdictText, NamesAReplay) {
  CaseReplayed event;
  event.id = "id";
  event.replay = 3;
  event.outcome = CaseOutcome::pass;
  EXPECT_EQ(replay_text(event), "replay 3: pass alone: id");
  event.before = 1;
  event.first = "a";
  EXPECT_EQ(replay_text(event), "replay 3: pass after a: id");
  event.before = 7;
  EXPECT_EQ(replay_text(event), "replay 3: pass after 7 cases, from a on: id");
}

TEST(VerdictViews, TheJunitReportHasTriesAsSurefireWritesThemAndTheVerdict) {
  const TemporaryFolder folder;
  const std::string xml = junit_report(run_with_tries_and_a_verdict());
  write_file(folder / "junit", xml);
  const std::string check = "python3 '" CP_POOL_CHECK_JUNIT "' '" + (folder / "junit").string() + "' > /dev/null";
  EXPECT_EQ(std::system(check.c_str()), 0);
  EXPECT_THAT(xml, HasSubstr("<rerunError type=\"timeout\" message=\"timeout: no result\">"));
  EXPECT_THAT(xml, HasSubstr("<flakyError type=\"crash\" message=\"crash: rank 1 died\">"));
  EXPECT_THAT(xml, HasSubstr("last words"));
  EXPECT_THAT(xml, HasSubstr("[[PROPERTY|flaky=true]]"));
  EXPECT_THAT(xml, HasSubstr("[[PROPERTY|verdict=STATE_LEAK]]"));
  EXPECT_THAT(xml, HasSubstr("[[PROPERTY|verdict_culprit=culprit/id]]"));
  EXPECT_THAT(xml, HasSubstr("alone on a fresh pool, the case failed in the same way in 0 of 3 replays"));
}

TEST(VerdictViews, TheMarkdownSummaryHasTriesAndTheVerdictInTheRowAndTheDetails) {
  const std::string text = markdown_report(run_with_tries_and_a_verdict());
  EXPECT_THAT(text, HasSubstr("flaky: crash, then pass on try 2"));
  EXPECT_THAT(text, HasSubstr("| the same as `bad`; STATE\\_LEAK (2 of 2), by culprit/id |\n"));
  EXPECT_THAT(text, HasSubstr("verdicts (--triage): 1 STATE_LEAK"));
  EXPECT_THAT(text, Not(HasSubstr("alone on a fresh pool")));  // its details are those of 'bad'

  EXPECT_THAT(markdown_report(report_of({failed_case(2, "leaked"), state_leak(2, "leaked", "culprit/id")})),
              HasSubstr("verdict: STATE_LEAK (2 of 2), by culprit/id\n"
                        "  alone on a fresh pool, the case failed in the same way in 0 of 3 replays\n"
                        "  after the suspect, the case failed\n```\n\n</details>\n"));
}

TEST(VerdictViews, VerdictsAreNoticesOfGithubTheFirstNineAndThenACount) {
  CaseVerdict untriaged;
  untriaged.index = 11;
  untriaged.id = "other";
  std::vector<Event> events{untriaged};
  for (std::size_t i = 0; i < 11; ++i) events.emplace_back(state_leak(i, "id", "culprit/id"));
  const std::vector<std::string> lines = github_annotations(report_of(events));
  ASSERT_EQ(lines.size(), 10U);
  EXPECT_EQ(lines[8],
            "::notice title=verdict%3A id::verdict: STATE_LEAK (2 of 2), by culprit/id%0A"
            "  alone on a fresh pool, the case failed in the same way in 0 of 3 replays%0A"
            "  after the suspect, the case failed%0A");
  EXPECT_EQ(lines[9], "::notice title=cp-pool::2 more verdicts are not shown here; see the log and the reports");
}

TEST(VerdictViews, TheSummaryCountsFlakyCasesAndVerdicts) {
  Summary summary;
  CaseVerdict untriaged;
  untriaged.id = "other";
  summary.add(state_leak(0, "id", "culprit/id"));
  summary.add(untriaged);
  EXPECT_EQ(summary.text(),
            "verdicts (--triage): 1 STATE_LEAK, 1 not triaged\n"
            "  STATE_LEAK (2 of 2), by culprit/id: id\n");
  RunFinished end = run_finished({3, 0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_THAT(ledger_line(end), Not(HasSubstr("flaky")));
  end.flaky = 2;
  EXPECT_THAT(ledger_line(end), HasSubstr("= 3 pass (2 flaky) + 0 fail"));
}

}  // namespace
}  // namespace cp_pool::test
