#include "driver/cli/select/selection_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/cli/commands/list_command.h"
#include "driver/cli/commands/run_command.h"
#include "driver/cli/testing/parsed_command_line.h"

namespace cp_pool {
namespace {

using test::parse_as;
using test::usage_error;
using ::testing::HasSubstr;

TEST(Options, WhereAnIdIsLookedUpIsNotForAFileOrAStream) {
  EXPECT_THAT(usage_error({"submit", "a.json", "--matrix", "quick"}),
              HasSubstr("--matrix is for the ID of a case, and a.json is a file (see cp-pool submit --help)"));
  EXPECT_THAT(usage_error({"submit", "-", "--size", "full"}),
              HasSubstr("--size is for the ID of a case, and - is a stream"));
  EXPECT_THAT(usage_error({"explain", "a.json", "--size", "full"}), HasSubstr("(see cp-pool explain --help)"));
}

TEST(ShardOption, IsOneOfRunAndList) {
  EXPECT_EQ(parse_as<RunCommandOptions>({"run"}).selection.shard.count, 1U);
  EXPECT_EQ(parse_as<RunCommandOptions>({"run", "--shard", "2/4"}).selection.shard.index, 2U);
  EXPECT_EQ(parse_as<ListOptions>({"list", "--shard", "4/5"}).selection.shard.count, 5U);
  EXPECT_THAT(usage_error({"run", "--shard", "5/4"}), HasSubstr("'5/4' is none of 1/N, 2/N .. N/N"));
}

}  // namespace
}  // namespace cp_pool
