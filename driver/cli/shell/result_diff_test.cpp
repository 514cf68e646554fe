#include "driver/cli/shell/result_diff.h"

#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/testing/attention.h"
#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

CaseFinished passed() {
  CaseFinished event = test::finished(0, "a/b", CaseOutcome::pass);
  event.ranks = {{{.output_hash = "f00d"}, 0}, {{.output_hash = "beef"}, 1}};
  event.timings_ms = {{"forward", 10}};
  return event;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in{text};
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(ResultDiff, OfEqualResultsHasTimesAlone) {
  CaseFinished now = passed();
  now.duration_ms = 150;
  now.timings_ms = {{"forward", 5}};
  EXPECT_THAT(
      lines_of(result_diff(passed(), now)),
      ElementsAre("           before  now", "time       100 ms  150 ms  x 1.50", "  forward  10 ms   5.0 ms  x 0.50",
                  "the same: case, outcome pass, 2 checks, outputs of 2 ranks"));
}

TEST(ResultDiff, NamesFieldsChecksAndOutputsThatDiffer) {
  CaseFinished now = passed();
  test::attention(now.payload).window = {64, 0};
  now.outcome = CaseOutcome::fail;
  now.reason = "out is\nwrong";
  now.checks[1].ok = false;
  now.checks[1].error = 4e-3;
  now.ranks[0].output_hash = "0bad";
  const std::vector<std::string> lines = lines_of(result_diff(passed(), now));
  EXPECT_THAT(lines, Contains("window           -1,-1                    64,0"));
  EXPECT_THAT(lines, Contains("outcome          pass                     fail"));
  EXPECT_THAT(lines, Contains("reason                                    out is wrong"));
  EXPECT_THAT(lines, Contains("out, rank 1      ok 0.001 / 0.002 = 0.50  WRONG 0.004 / 0.002 = 2.00"));
  EXPECT_THAT(lines, Contains("outputs, rank 0  f00d                     0bad"));
  EXPECT_THAT(lines, Not(Contains(StartsWith("out, rank 0"))));
  EXPECT_EQ(lines.back(), "the same: 1 check, outputs of 1 rank");
}

TEST(ResultDiff, HasADashForWhatOneOfThemLacks) {
  CaseFinished now = passed();
  now.checks.clear();
  now.ranks.clear();
  now.timings_ms = {{"backward", 7}};
  const std::string text = result_diff(passed(), now);
  EXPECT_THAT(text, HasSubstr("out, rank 0      ok 0.001 / 0.002 = 0.50  -\n"));
  EXPECT_THAT(text, HasSubstr("outputs, rank 1  beef                     -\n"));
  EXPECT_THAT(text, HasSubstr("  backward       -                        7.0 ms\n"));
}

TEST(ResultDiff, ComparesTheStepOfTimedCases) {
  EXPECT_THAT(result_diff(test::timed_case(0, "a/b", 10), test::timed_case(0, "a/b", 20)),
              HasSubstr("step, median  10 ms   20 ms   x 2.00\n"));
}

TEST(ResultDiff, CutsLongTexts) {
  CaseFinished now = passed();
  now.reason = std::string(200, 'x') + " end";
  EXPECT_THAT(result_diff(passed(), now), HasSubstr("x.. end\n"));
  EXPECT_THAT(result_diff(passed(), now), Not(HasSubstr(std::string(60, 'x'))));
}

}  // namespace
}  // namespace cp_pool
