#include "driver/cli/commands/list_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/cli/testing/parsed_command_line.h"

namespace cp_pool {
namespace {

using test::parse_as;
using ::testing::ElementsAre;

TEST(ListOptions, AreReadFromTheCommandLine) {
  const auto list = parse_as<ListOptions>({"list", "--matrix", "a", "b", "--filter", "x", "--size", "full", "--count"});
  EXPECT_THAT(list.selection.matrices, ElementsAre("a", "b"));
  EXPECT_THAT(list.selection.filters, ElementsAre("x"));
  EXPECT_EQ(list.selection.size, "full");
  EXPECT_TRUE(list.count);
  EXPECT_TRUE(parse_as<ListOptions>({"list", "--json"}).json);
}

}  // namespace
}  // namespace cp_pool
