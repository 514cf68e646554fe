#include "driver/cli/man_page.h"

#include <algorithm>
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

using ::testing::HasSubstr;

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

TEST(EnvironmentHelp, HasEveryVariableThatTheSourcesRead) {
  const auto variables = variables_of_all_sources();
  for (const char* known : {"CP_POOL_PLAN_STORE", "CP_POOL_MASTER_FD", "CP_POOL_PYTHON", "CP_POOL_SOAK_SEED"}) {
    EXPECT_TRUE(variables.contains(known)) << "the search has lost its eyes: " << known;
  }
  for (const auto& [variable, file] : variables) {
    EXPECT_EQ(std::ranges::count(environment_variables(), variable, &EnvironmentVariable::name), 1)
        << variable << " of " << file << " is to be described in driver/cli/man_page.cpp";
  }
}

TEST(EnvironmentHelp, IsASectionOfTheManPage) {
  const std::string page = test::parse_as<PrintText>({"--man"}).text;
  EXPECT_THAT(page, HasSubstr(".SH ENVIRONMENT\n.TP\n\\fBCP_POOL_PLAN_STORE\\fR\nThe folder in which"));
  for (const EnvironmentVariable& variable : environment_variables()) {
    EXPECT_THAT(page, HasSubstr("\\fB" + std::string{variable.name} + "\\fR\n"));
    EXPECT_TRUE(variable.meaning.ends_with('.')) << variable.name;
  }
}

TEST(EnvironmentHelp, SaysHowARankEndsThatLosesTheDriver) {
  const auto lifeline = std::ranges::find(environment_variables(), "CP_POOL_LIFELINE", &EnvironmentVariable::name);
  EXPECT_TRUE(lifeline->meaning.ends_with(fmt::format(" exit code {}.", protocol::kExitWithoutDriver)));
}

}  // namespace
}  // namespace cp_pool
