// Tests the help text and its examples, each of which can be called as it stands.
#include <regex>
#include <sstream>

#include <gmock/gmock.h>

#include "driver/cli/shell_words.h"
#include "driver/cli/testing/parsed_command_line.h"

namespace cp_pool {
namespace {

using ::testing::HasSubstr;

std::string printed(const std::vector<std::string>& words) {
  return test::parse_as<PrintText>(words).text;
}

std::vector<std::string> commands() {
  std::vector<std::string> names;
  std::istringstream lines{printed({"--help"})};
  bool listed = false;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words{line};
    std::string name;
    words >> name;
    if (listed && line.starts_with("  ") && !name.empty()) names.push_back(name);
    listed = (listed && !line.empty()) || line == "Subcommands:" || line == "SUBCOMMANDS:";
  }
  return names;
}

// Returns the calls of cp-pool in a line of examples. Three blanks end the command; a pipe may hold several calls.
std::vector<std::string> calls_in(const std::string& line) {
  const std::string code = line.substr(2, line.find("   ", 2) - 2);
  std::vector<std::string> calls;
  const std::regex call{R"((?:^|\| )(cp-pool(?:[^'|]|'[^']*')*))"};
  for (std::sregex_iterator match{code.begin(), code.end(), call}, end; match != end; ++match) {
    calls.push_back((*match)[1]);
  }
  return calls;
}

TEST(HelpText, OfEachCommandHasExamplesOfItThatCanBeCalled) {
  ASSERT_THAT(commands(), ::testing::IsSupersetOf({"run", "submit", "list", "report", "explain", "doctor", "help"}));
  for (const std::string& command : commands()) {
    const std::string help = printed({command, "--help"});
    const std::size_t begin = help.find("Examples:\n");
    ASSERT_NE(begin, std::string::npos) << command;
    std::istringstream lines{help.substr(begin)};
    std::string line;
    std::getline(lines, line);
    int of_command = 0;
    while (std::getline(lines, line) && line.starts_with("  ")) {
      for (const std::string& call : calls_in(line)) {
        auto words = split_words(call);
        ASSERT_TRUE(words) << call;
        words->erase(words->begin());  // cp-pool
        EXPECT_NO_THROW(parse_command_line(*words)) << call;
        of_command += words->at(0) == command ? 1 : 0;
      }
    }
    EXPECT_GE(of_command, 1) << command;
  }
}

TEST(HelpCommand, IsTheHelpOfACommand) {
  EXPECT_EQ(printed({"help", "run"}), printed({"run", "--help"}));
  EXPECT_EQ(printed({"help", "doctor"}), printed({"doctor", "--help"}));
  EXPECT_EQ(printed({"help"}), printed({"--help"}));
  EXPECT_THAT(test::usage_error({"help", "rum"}), HasSubstr("there is no command 'rum'; did you mean 'run'?"));
}

}  // namespace
}  // namespace cp_pool
