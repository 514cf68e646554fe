#include <filesystem>
#include <fstream>
#include <map>
#include <regex>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "driver/cli/testing/parsed_command_line.h"
#include "worker/protocol/messages.h"

namespace cp_pool {
namespace {

// Returns the variables that a source reads or sets; the pattern depends on its language. Variables that only tests use
// are called CP_POOL_TEST_* and are left out.
std::vector<std::string> variables_in(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  const bool is_cpp = name.ends_with(".cpp") || name.ends_with(".h") || name.ends_with(".cu");
  const char* pattern = R"((?:environ\S*["']|\$\{?|")(CP_POOL_[A-Z0-9_]+))";  // for Python and shells
  if (is_cpp) pattern = R"re("(CP_POOL_[A-Z0-9_]+)")re";
  if (name.ends_with("_test.cpp")) pattern = R"re((?:getenv|_environment)\("(CP_POOL_[A-Z0-9_]+)")re";
  const std::regex regex{pattern};
  std::vector<std::string> found;
  std::ifstream in{file};
  for (std::string line; std::getline(in, line);) {
    if (line.find("CP_POOL_") == std::string::npos) continue;  // a hundred times as fast as the pattern alone
    for (std::sregex_iterator match{line.begin(), line.end(), regex}, end; match != end; ++match) {
      if (const std::string variable = (*match)[1]; !variable.starts_with("CP_POOL_TEST_")) found.push_back(variable);
    }
  }
  return found;
}

std::map<std::string, std::string> variables_of_all_sources() {  // with a file that has each
  std::map<std::string, std::string> found;
  for (const char* folder : {"cases", "cp_core", "docs/examples", "driver", "tests", "tools", "worker"}) {
    const std::filesystem::path root = std::filesystem::path{CP_POOL_SOURCE_DIR} / folder;
    for (const auto& entry : std::filesystem::recursive_directory_iterator{root}) {
      const std::filesystem::path& file = entry.path();
      const std::string kind = file.extension();
      const bool is_script = kind.empty() || kind == ".py" || kind == ".sh";
      const bool is_source = is_script || kind == ".cpp" || kind == ".h" || kind == ".cu";
      if (!entry.is_regular_file() || !is_source || file.filename() == "man_page.cpp") continue;
      for (const std::string& variable : variables_in(file)) found.emplace(variable, file);
    }
  }
  return found;
}

// Returns the variables in the section ENVIRONMENT of the man page, each with what is said of it.
std::multimap<std::string, std::string> environment_help() {
  const std::string page = test::parse_as<PrintText>({"--man"}).text;
  const std::size_t begin = page.find(".SH ENVIRONMENT\n");
  const std::string section = page.substr(begin, page.find(".SH EXIT STATUS") - begin);
  static const std::regex entry{R"(\.TP\n\\fB(\w+)\\fR\n(.*)\n)"};
  std::multimap<std::string, std::string> found;
  for (std::sregex_iterator match{section.begin(), section.end(), entry}, end; match != end; ++match) {
    found.emplace((*match)[1], (*match)[2]);
  }
  return found;
}

TEST(EnvironmentHelp, HasEveryVariableThatTheSourcesRead) {
  const auto variables = variables_of_all_sources();
  for (const char* known : {"CP_POOL_PLAN_STORE", "CP_POOL_MASTER_FD", "CP_POOL_PYTHON", "CP_POOL_SOAK_SEED"}) {
    EXPECT_TRUE(variables.contains(known)) << "the search has lost its eyes: " << known;
  }
  const auto help = environment_help();
  for (const auto& [variable, file] : variables) {
    EXPECT_EQ(help.count(variable), 1U) << variable << " of " << file
                                        << " is to be described in driver/cli/man_page.cpp";
  }
}

TEST(EnvironmentHelp, SaysASentenceOfEachVariable) {
  const auto help = environment_help();
  ASSERT_THAT(help, ::testing::SizeIs(::testing::Gt(40U)));
  EXPECT_THAT(help.find("CP_POOL_PLAN_STORE")->second, ::testing::StartsWith("The folder in which"));
  for (const auto& [variable, meaning] : help) EXPECT_THAT(meaning, ::testing::EndsWith(".")) << variable;
}

TEST(EnvironmentHelp, SaysHowARankEndsThatLosesTheDriver) {
  EXPECT_THAT(environment_help().find("CP_POOL_LIFELINE")->second,
              ::testing::EndsWith(fmt::format(" exit code {}.", protocol::kExitWithoutDriver)));
}

}  // namespace
}  // namespace cp_pool
