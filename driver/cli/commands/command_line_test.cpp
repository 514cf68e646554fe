#include <cctype>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "driver/cli/commands/command.h"
#include "driver/cli/commands/command_options.h"
#include "driver/cli/testing/parsed_command_line.h"

namespace cp_pool::test {
namespace {

using ::testing::HasSubstr;

TEST(CommandLineErrors, AreOneLineThatNamesTheWord) {
  EXPECT_THAT(usage_error({}), HasSubstr("subcommand"));
  EXPECT_THAT(usage_error({"fly"}), HasSubstr("fly"));
  EXPECT_THAT(usage_error({"run", "--speed"}), HasSubstr("--speed"));
  EXPECT_THAT(usage_error({"run", "--timeout", "soon"}), HasSubstr("'soon' is not a duration"));
  EXPECT_THAT(usage_error({"run", "--timeout", "0"}), HasSubstr("'0' is too short"));
  EXPECT_THAT(usage_error({"run", "--pool-max-cases", "-1"}), HasSubstr("--pool-max-cases"));
  EXPECT_THAT(usage_error({"run", "--timeout", "1000000h"}), HasSubstr("of at most 1000 hours"));
  EXPECT_THAT(usage_error({"run", "--repeat", "2147483648"}), HasSubstr("'2147483648' is more than 2147483647"));
  EXPECT_THAT(usage_error({"run", "--max-fail", "99999999999999999999"}), HasSubstr("is more than 2147483647"));
  EXPECT_EQ(parse_as<RunCommandOptions>({"run", "--max-fail", "2147483647"}).execution.config.max_failures, 2147483647);
  EXPECT_THAT(usage_error({"run", "--device", "abacus"}), HasSubstr("abacus"));
  EXPECT_THAT(usage_error({"run", "--worker", "'open"}), HasSubstr("''open' is not a command line"));
  EXPECT_THAT(usage_error({"run", "--junit"}), HasSubstr("--junit"));
  for (const char* option : {"--junit", "--events", "--html", "--run-dir", "--dump", "--rerun-failed"}) {
    EXPECT_THAT(usage_error({"run", option, "-"}), HasSubstr("'-' stands for no stream here"));
  }
  EXPECT_EQ(parse_as<RunCommandOptions>({"run", "--events", "./-"}).execution.events, "./-");
  EXPECT_THAT(usage_error({"submit"}), HasSubstr("CASE"));
  EXPECT_THAT(usage_error({"list", "--json", "--count"}), HasSubstr("--"));
  EXPECT_EQ(usage_error({"run", "--timeout", "soon"}).find('\n'), std::string::npos);
  EXPECT_THAT(usage_error({"run", "--timeout", "soon"}), HasSubstr("(see cp-pool run --help)"));
}

TEST(CommandLineErrors, SuggestTheOptionThatWasMeant) {
  EXPECT_EQ(usage_error({"run", "--matrx=quick"}),
            "there is no option '--matrx'; did you mean '--matrix'? (see cp-pool run --help)");
  EXPECT_THAT(usage_error({"run", "--no_progress", "--matrix", "quick"}), HasSubstr("did you mean '--no-progress'?"));
  EXPECT_THAT(usage_error({"report", "--evnts", "x"}), HasSubstr("there is no option '--evnts'"));
  EXPECT_THAT(usage_error({"--versoin"}), HasSubstr("did you mean '--version'? (see cp-pool --help)"));
  EXPECT_THAT(usage_error({"--versoin", "list"}), HasSubstr("did you mean '--version'? (see cp-pool --help)"));
  EXPECT_EQ(usage_error({"run", "--speed"}), "there is no option '--speed' (see cp-pool run --help)");
  EXPECT_THAT(usage_error({"ruun"}), HasSubstr("there is no command 'ruun'; did you mean 'run'?"));
}

TEST(CommandLineErrors, SuggestAnOptionInEveryCommand) {
  std::istringstream help{parse_as<PrintText>({"--help"}).text};
  std::vector<std::string> commands;
  for (std::string line; std::getline(help, line);) {
    const std::size_t end = line.find("  ", 2);
    const bool names_one = line.starts_with("  ") && std::isalpha(static_cast<unsigned char>(line[2])) != 0;
    if (names_one && end != std::string::npos) commands.push_back(line.substr(2, end - 2));
  }
  std::erase_if(commands, [](const std::string& words) { return words.find(' ') != std::string::npos; });
  ASSERT_GT(commands.size(), 15U);
  for (const std::string& command : commands) {
    EXPECT_EQ(usage_error({command, "--hlep"}),
              fmt::format("there is no option '--hlep'; did you mean '--help'? (see cp-pool {} --help)", command));
  }
}

TEST(CommandLineErrors, SayWhereAnIdOrAMatrixGoes) {
  EXPECT_EQ(usage_error({"run", "quick/causal/p2p/cp2/bshd/fp32"}),
            "run does not take the argument 'quick/causal/p2p/cp2/bshd/fp32'; --filter quick/causal/p2p/cp2/bshd/fp32 "
            "selects cases, and cp-pool submit quick/causal/p2p/cp2/bshd/fp32 runs one (see cp-pool run --help)");
  EXPECT_THAT(usage_error({"list", "te-flash"}), HasSubstr("; --matrix te-flash selects its cases"));
  EXPECT_THAT(usage_error({"submit", "one", "two"}), HasSubstr("submit does not take the argument 'two' (see"));
}

TEST(Help, NamesEveryOptionExamplesAndExitCodes) {
  const std::string run = parse_as<PrintText>({"run", "--help"}).text;
  for (const std::string& part : words_of("--matrix --filter --rerun-failed --size --device --timeout --start-timeout "
                                          "--grace --global-timeout --max-consecutive-timeouts --pool-max-cases "
                                          "--worker --junit --events --html --run-dir "
                                          "--dump --no-reference-cache --fail-fast --no-progress Examples: '130  '")) {
    EXPECT_THAT(run, HasSubstr(part));
  }
  const std::string all = parse_as<PrintText>({"--help"}).text;
  for (const char* part : {"run", "submit", "list", "--version", "Examples:", "Exit codes"}) {
    EXPECT_THAT(all, HasSubstr(part));
  }
}

TEST(ManPage, HoldsWhatTheHelpHolds) {
  const std::string page = parse_as<PrintText>({"--man"}).text;
  EXPECT_THAT(page, ::testing::StartsWith(".TH CP\\-POOL 1 "));
  for (const char* part : {".SH CP\\-POOL run\n", ".SH CP\\-POOL submit\n", "\\fB\\-\\-max\\-fail\\fR \\fIN\\fR",
                           "(default: 90s)", "\\fBCASE\\fR", ".SH EXIT STATUS\n", "130  interrupted"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
}

TEST(Version, IsOneLine) {
  EXPECT_EQ(parse_as<PrintText>({"--version"}).text, "cp-pool " CP_POOL_VERSION "\n");
}

}  // namespace
}  // namespace cp_pool::test
