#include "driver/cli/commands/submit_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/cli/testing/parsed_command_line.h"

namespace cp_pool {
namespace {

using test::parse_as;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SubmitOptions, TakeACaseAndLookItUpInEveryMatrix) {
  const auto submit = parse_as<SubmitOptions>({"submit", "--json", "--matrix", "te-flash", "the/id"});
  EXPECT_EQ(submit.case_argument, "the/id");
  EXPECT_THAT(submit.selection.matrices, ElementsAre("te-flash"));
  EXPECT_TRUE(submit.json);
  EXPECT_THAT(parse_as<SubmitOptions>({"submit", "x"}).selection.matrices, IsEmpty());
  EXPECT_EQ(parse_as<SubmitOptions>({"submit", "-"}).case_argument, "-");
}

}  // namespace
}  // namespace cp_pool
