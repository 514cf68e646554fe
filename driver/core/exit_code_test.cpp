#include "driver/core/exit_code.h"

#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace cp_pool {
namespace {

TEST(FirstThatApplies, ALostReportTurnsSuccessIntoFailureButHidesNothingWorse) {
  EXPECT_EQ(first_that_applies(0, ExitCode::cannot_write), 73);
  EXPECT_EQ(first_that_applies(4, ExitCode::cannot_write), 73);
  EXPECT_EQ(first_that_applies(96, ExitCode::cannot_write), 96);
  EXPECT_EQ(first_that_applies(100, ExitCode::cannot_write), 100);
  EXPECT_EQ(first_that_applies(100, ExitCode::interrupted), 130);
}

TEST(ExitCodes, TheDocumentedTableIsTheTable) {
  std::ifstream file{CP_POOL_SOURCE_DIR "/docs/command_line.md"};
  std::stringstream text;
  text << file.rdbuf();
  std::istringstream help{exit_code_help()};
  std::string line;
  std::getline(help, line);
  std::string expected;
  for (int code = 0; help >> code >> std::ws && std::getline(help, line);) {
    expected += fmt::format("| {} | {} |\n", code, line);
  }
  EXPECT_THAT(text.str(), ::testing::HasSubstr(expected));
}

}  // namespace
}  // namespace cp_pool
