#include "driver/cli/shell/shell_line.h"

#include <gmock/gmock.h>

#include "driver/testing/command_error.h"

namespace cp_pool {
namespace {

using namespace ::testing;

std::string shell_error(const std::string& text) {
  return test::command_error(ExitCode::usage, [&] { parse_shell_line(text); });
}

TEST(ShellLine, ThatIsEmptyOrAComment) {
  for (const char* const text : {"", "  \t", "# te-flash/x", "  #"}) {
    EXPECT_EQ(parse_shell_line(text).verb, ShellVerb::nothing) << text;
  }
}

TEST(ShellLine, OfACaseSubmitsIt) {
  const ShellLine line = parse_shell_line("  quick/causal/p2p/cp2/bshd/fp32/heads=8 --timeout 5s ");
  EXPECT_EQ(line.verb, ShellVerb::submit);
  EXPECT_THAT(line.arguments, ElementsAre("quick/causal/p2p/cp2/bshd/fp32/heads=8"));
  EXPECT_THAT(line.options, ElementsAre("--timeout", "5s"));
  EXPECT_THAT(parse_shell_line("submit a/b").arguments, ElementsAre("a/b"));
  EXPECT_THAT(parse_shell_line("case.json").arguments, ElementsAre("case.json"));
}

TEST(ShellLine, OfFieldsSubmitsThem) {
  const ShellLine line = parse_shell_line("cp_size=2 window=64,-1 model='a b'");
  EXPECT_EQ(line.verb, ShellVerb::submit);
  EXPECT_THAT(line.arguments, ElementsAre("cp_size=2", "window=64,-1", "model=a b"));
  EXPECT_THAT(line.options, IsEmpty());
}

TEST(ShellLine, OfJsonKeepsItsQuotes) {
  const ShellLine line = parse_shell_line(R"( {"cp_size": 2, "model": "a b"} )");
  EXPECT_EQ(line.verb, ShellVerb::submit);
  EXPECT_THAT(line.arguments, ElementsAre(R"({"cp_size": 2, "model": "a b"})"));
}

TEST(ShellLine, OfACommandHasItsArguments) {
  EXPECT_EQ(parse_shell_line("again").verb, ShellVerb::again);
  EXPECT_EQ(parse_shell_line("exit").verb, ShellVerb::quit);
  EXPECT_THAT(parse_shell_line("set comm=a2a cp_size=4").arguments, ElementsAre("comm=a2a", "cp_size=4"));
  const ShellLine list = parse_shell_line("list comm=p2p & !model=cp_3_* --matrix te-flash");
  EXPECT_THAT(list.arguments, ElementsAre("comm=p2p", "&", "!model=cp_3_*"));
  EXPECT_THAT(list.options, ElementsAre("--matrix", "te-flash"));
}

TEST(ShellLine, IsRefusedWithASuggestion) {
  EXPECT_EQ(shell_error("lst"),
            "'lst' is no command of the shell and no case; did you mean 'list'?; help lists the commands");
  EXPECT_THAT(shell_error("-"), HasSubstr("'-' is no command"));
  EXPECT_THAT(shell_error("submit"), HasSubstr("submit needs CASE"));
  EXPECT_THAT(shell_error("diff 3"), HasSubstr("diff: unexpected argument '3'"));
  EXPECT_THAT(shell_error("why --json"), HasSubstr("why has no options: '--json'"));
  EXPECT_THAT(shell_error("submit 'a/b"), HasSubstr("a quote is not closed"));
}

TEST(ShellHelp, HasALineForEachCommand) {
  for (const ShellVerbFacts& verb : shell_verbs()) EXPECT_THAT(shell_help(), HasSubstr("  " + std::string{verb.name}));
}

}  // namespace
}  // namespace cp_pool
