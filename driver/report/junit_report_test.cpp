#include <cstdio>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cases/testing/temporary_folder.h"
#include "driver/report/reports.h"
#include "driver/testing/attention.h"
#include "driver/testing/example_events.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

using test::finished;
using test::run_finished;
using test::run_started;
using test::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Returns the report as Python's XML parser reads it. check_junit.py also checks the structure that CI systems expect.
nlohmann::json report_of(const std::vector<Event>& events) {
  const TemporaryFolder folder;
  const std::string xml = junit_report(test::report_of(events));
  test::write_file(folder / "junit.xml", xml);
  const std::string command =
      std::string{"python3 '" CP_POOL_CHECK_JUNIT "' '"} + (folder / "junit.xml").string() + "'";
  FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  EXPECT_EQ(::pclose(pipe), 0) << xml;
  return nlohmann::json::parse(text);
}

std::size_t index_of(CaseOutcome outcome) {
  return static_cast<std::size_t>(outcome);
}

// GitLab shows only the first of several cases of one name, so report_of fails for equal names.
TEST(Junit, ACaseThatAStreamRunsTwiceHasTwoNames) {
  CaseFinished again = finished(2, "a", CaseOutcome::skip);
  again.number = 3;
  const nlohmann::json report = report_of(
      {run_started(0), again, finished(0, "a", CaseOutcome::pass), run_finished({1, 0, 1, 0, 0, 0, 0, 0, 0})});
  const nlohmann::json& cases = report["suites"][0]["cases"];
  EXPECT_EQ(cases[0]["name"], "a");
  EXPECT_EQ(cases[1]["name"], "a (#2)");
  EXPECT_EQ(cases[1]["text"], "skip: no reason given\n");
}

TEST(Junit, CasesAreGroupedBySuiteInListedOrderWithTheirTimes) {
  CaseFinished other = finished(1, "te-fused/x", CaseOutcome::pass);
  test::attention(other.payload).suite = "te-fused";
  const nlohmann::json report =
      report_of({run_started(3), finished(2, "te-flash/b", CaseOutcome::pass), other,
                 finished(0, "te-flash/a", CaseOutcome::pass), run_finished({3, 0, 0, 0, 0, 0, 0, 0, 0})});
  EXPECT_EQ(report["time"], "41.200");
  ASSERT_EQ(report["suites"].size(), 2U);
  const nlohmann::json& flash = report["suites"][0];
  EXPECT_EQ(flash["name"], "te-flash");
  EXPECT_EQ(flash["time"], "0.400");
  EXPECT_EQ(flash["cases"][0]["name"], "te-flash/a");
  EXPECT_EQ(flash["cases"][1]["name"], "te-flash/b");
  EXPECT_EQ(flash["cases"][1]["time"], "0.300");
  EXPECT_EQ(flash["cases"][1]["classname"], "te-flash.cp_2_0");
  EXPECT_EQ(report["suites"][1]["name"], "te-fused");
}

TEST(Junit, ACaseThatNeverRanNamesNoBackend) {
  CaseFinished event = finished(0, "id", CaseOutcome::infra, "no pool");
  event.backend.clear();
  const nlohmann::json report = report_of({run_started(1), event, run_finished({0, 0, 0, 0, 0, 0, 1, 0, 0})});
  EXPECT_EQ(report["suites"][0]["cases"][0]["properties"]["backend"], "");
}

TEST(Junit, ACaseThatAnotherBackendComputedInPartSaysSo) {
  CaseFinished event = finished(0, "id", CaseOutcome::pass);
  event.bound_factor = 2.5;
  event.backend_note = "tiles ran as math";
  const nlohmann::json report = report_of({run_started(1), event, run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0})});
  EXPECT_EQ(report["suites"][0]["cases"][0]["properties"]["backend_note"], "tiles ran as math");
  EXPECT_EQ(report["suites"][0]["cases"][0]["properties"]["bound_factor"], "2.5");
}

TEST(Junit, APassWithoutFiguresSaysSo) {
  CaseFinished event = finished(0, "id", CaseOutcome::pass);
  event.checks.clear();
  const nlohmann::json report = report_of({run_started(1), event, run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0})});
  EXPECT_EQ(report["suites"][0]["cases"][0]["properties"]["verdict"], "unverified by figures");
}

TEST(Junit, ATimedCaseHasItsFigures) {
  const nlohmann::json report =
      report_of({run_started(2), test::timed_case(0, "alone", 2), test::compared_case(1, "compared", 3, 2),
                 run_finished({2, 0, 0, 0, 0, 0, 0, 0, 0})});
  const nlohmann::json& cases = report["suites"][0]["cases"];
  EXPECT_EQ(cases[0]["properties"]["perf_ms"], "2");
  EXPECT_FALSE(cases[0]["properties"].contains("perf_ratio"));
  EXPECT_EQ(cases[1]["properties"]["perf_baseline_ms"], "2");
  EXPECT_EQ(cases[1]["properties"]["perf_ratio"], "1.5");
}

TEST(Junit, EveryOutcomeHasItsElement) {
  const std::vector<std::pair<CaseOutcome, std::string>> expected = {
      {CaseOutcome::pass, "passed"}, {CaseOutcome::fail, "failure"},      {CaseOutcome::skip, "skipped"},
      {CaseOutcome::error, "error"}, {CaseOutcome::timeout, "error"},     {CaseOutcome::crash, "error"},
      {CaseOutcome::infra, "error"}, {CaseOutcome::cancelled, "skipped"}, {CaseOutcome::not_run, "skipped"}};
  ASSERT_EQ(expected.size(), kCaseOutcomes);
  for (const auto& [outcome, element] : expected) {
    RunFinished end;
    end.counts.at(index_of(outcome)) = end.expanded = 1;
    const nlohmann::json report = report_of({run_started(1), finished(0, "id", outcome, "because"), end});
    const nlohmann::json& test = report["suites"][0]["cases"][0];
    EXPECT_EQ(test["result"], element) << to_string(outcome);
    if (outcome == CaseOutcome::pass) continue;
    EXPECT_THAT(test["message"].get<std::string>(), HasSubstr(": because"));
    const bool is_skipped = element == "skipped";
    EXPECT_EQ(test["text"].get<std::string>().find("rerun: ") == std::string::npos, is_skipped) << to_string(outcome);
  }
}

TEST(Junit, AnExpectedFailureIsSkippedAndAPassThatHadToFailAFailure) {
  CaseFinished failed = finished(0, "failed", CaseOutcome::fail, "because");
  failed.expected = Expected{.reason = "issue 5"};
  CaseFinished passed = finished(1, "passed", CaseOutcome::pass);
  passed.expected = Expected{.reason = "issue 6", .strict = true};
  CaseFinished lenient = finished(2, "lenient", CaseOutcome::pass);
  lenient.expected = Expected{.reason = "issue 7"};
  const nlohmann::json report =
      report_of({run_started(3), failed, passed, lenient, run_finished({2, 1, 0, 0, 0, 0, 0, 0, 0})});
  const nlohmann::json& cases = report["suites"][0]["cases"];
  EXPECT_EQ(cases[0]["result"], "skipped");
  EXPECT_EQ(cases[0]["message"], "expected to fail: issue 5 (fail: because)");
  EXPECT_EQ(cases[0]["properties"]["outcome"], "fail");
  EXPECT_EQ(cases[1]["result"], "failure");
  EXPECT_EQ(cases[1]["message"], "passed, and was expected to fail: issue 6");
  EXPECT_EQ(cases[2]["result"], "passed");
  EXPECT_EQ(cases[2]["properties"]["expected"], "fail: issue 7");
}

TEST(Junit, CleanTextIsTextNotMarkup) {
  CaseFinished event = finished(0, "id<&>\"", CaseOutcome::crash,
                                protocol::clean_text("a\x01"
                                                     "b \x1b[31mred\x1b[0m \xff <tag> ]]>"));
  event.rerun = "cp-pool submit a\nb ]] <&>";
  event.stderr_tails = {
      {.rank = 0, .text = protocol::clean_text(std::string("nul \0 bell \a", 12) + "\xef\xbf\xbf"), .fenced = true}};
  const nlohmann::json report = report_of({run_started(1), event, run_finished({0, 0, 0, 0, 0, 1, 0, 0, 0})});
  const nlohmann::json& test = report["suites"][0]["cases"][0];
  EXPECT_EQ(test["name"], "id<&>\"");
  EXPECT_EQ(test["message"], "crash: a\\x01b \\x1b[31mred\\x1b[0m \xef\xbf\xbd <tag> ]]>");
  EXPECT_THAT(test["text"].get<std::string>(), StartsWith("a\\x01b \\x1b[31mred\\x1b[0m \xef\xbf\xbd <tag> ]]>\n"));
  EXPECT_EQ(test["properties"]["rerun"], "cp-pool submit a b ]] <&>");
  EXPECT_EQ(test["stderr"], "rank 0 stderr:\n  | nul \\x00 bell \\x07\xef\xbf\xbd\n");
}

TEST(Junit, ARunWithoutCasesIsStillAReport) {
  EXPECT_EQ(report_of({run_started(0), run_finished({})})["suites"].size(), 0U);
}

}  // namespace
}  // namespace cp_pool
