// Options that say opposite things are refused, and those that users of other test programs know mean what they expect.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/cli/exit_code.h"
#include "driver/cli/options.h"

namespace cp_pool {
namespace {

using ::testing::HasSubstr;

CommandLine parse_call(std::vector<const char*> words) {
  words.insert(words.begin(), "cp-pool");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}

std::string refusal_of(std::vector<const char*> words) {
  try {
    parse_call(std::move(words));
  } catch (const CommandError& e) {
    EXPECT_EQ(e.code(), ExitCode::usage);
    return e.what();
  }
  return "no error";
}

TEST(ShortOptions, MeanWhatUsersOfPytestExpect) {
  const auto run = std::get<RunOptions>(parse_call({"run", "-x", "-k", "p2p and not thd", "-v"}));
  EXPECT_EQ(run.execution.config.max_failures, 1);
  EXPECT_EQ(run.selection.keywords, "p2p and not thd");
  EXPECT_TRUE(run.execution.verbose);
  EXPECT_FALSE(std::get<RunOptions>(parse_call({"run", "-q"})).execution.progress);
  EXPECT_EQ(std::get<RunOptions>(parse_call({"run", "-xqk", "thd"})).selection.keywords, "thd");
  EXPECT_EQ(std::get<ListOptions>(parse_call({"list", "-k", "thd"})).selection.keywords, "thd");
  EXPECT_EQ(std::get<SubmitOptions>(parse_call({"submit", "-", "-x"})).execution.config.max_failures, 1);
  EXPECT_TRUE(std::get<ReportOptions>(parse_call({"report", "e", "-v"})).execution.verbose);
}

TEST(Contradictions, AreRefused) {
  EXPECT_THAT(refusal_of({"run", "-v", "-q"}), HasSubstr("--verbose and --no-progress contradict each other"));
  EXPECT_THAT(refusal_of({"report", "e", "-v", "-q"}), HasSubstr("--verbose and --no-progress contradict each other"));
  EXPECT_THAT(refusal_of({"run", "-x", "--max-fail", "3"}),
              HasSubstr("--fail-fast is --max-fail 1: it contradicts --max-fail 3 (see cp-pool run --help)"));
  EXPECT_THAT(refusal_of({"submit", "-", "--isolate", "--pool-max-cases", "2"}),
              HasSubstr("--isolate is --pool-max-cases 1: it contradicts --pool-max-cases 2 (see cp-pool submit"));
  EXPECT_THAT(refusal_of({"submit", "-", "--json", "-v"}), HasSubstr("--json and --verbose contradict each other"));
  EXPECT_THAT(refusal_of({"submit", "-", "--json", "--timings"}), HasSubstr("--json and --timings contradict"));
  EXPECT_THAT(refusal_of({"list", "--json", "--count"}), HasSubstr("--"));
}

TEST(Contradictions, AreNotWhatSaysTheSameTwice) {
  EXPECT_EQ(std::get<RunOptions>(parse_call({"run", "-x", "--max-fail", "1"})).execution.config.max_failures, 1);
  EXPECT_EQ(
      std::get<RunOptions>(parse_call({"run", "--isolate", "--pool-max-cases", "1"})).execution.config.pool_max_cases,
      1);
  EXPECT_FALSE(std::get<SubmitOptions>(parse_call({"submit", "-", "--json", "-q"})).execution.progress);
}

}  // namespace
}  // namespace cp_pool
