#include <cstdio>

#include <gmock/gmock.h>
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
