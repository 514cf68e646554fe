#include "driver/cli/commands/search_command.h"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/cli/testing/parsed_command_line.h"

namespace cp_pool {
namespace {

using std::chrono::milliseconds;
using test::parse_as;
using test::usage_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SearchOptions, HaveTheDocumentedDefaults) {
  const auto search = parse_as<SearchOptions>({"search"});
  EXPECT_EQ(search.time, milliseconds{60'000});
  EXPECT_EQ(search.cases, 0);
  EXPECT_TRUE(search.seed) << "one was drawn";
  EXPECT_FALSE(search.keep_going);
  EXPECT_EQ(search.shrink_time, milliseconds{120'000});
  EXPECT_EQ(search.found, "");
  EXPECT_THAT(search.edits, IsEmpty());
  EXPECT_THAT(search.filters, IsEmpty());
  EXPECT_EQ(search.execution.config.max_consecutive_timeouts, 0);
  EXPECT_EQ(search.execution.config.timeout, milliseconds{90'000});
}

TEST(SearchOptions, AreReadFromTheCommandLine) {
  const auto search = parse_as<SearchOptions>({"search",
                                               "--time",
                                               "10m",
                                               "--cases",
                                               "50",
                                               "--seed",
                                               "18446744073709551615",
                                               "--set",
                                               "comm=p2p",
                                               "--set",
                                               "cp_size=2",
                                               "--filter",
                                               "heads>2",
                                               "--keep-going",
                                               "--shrink-time",
                                               "5s",
                                               "--found",
                                               "off",
                                               "--max-consecutive-timeouts",
                                               "2"});
  EXPECT_EQ(search.time, milliseconds{600'000});
  EXPECT_EQ(search.cases, 50);
  EXPECT_EQ(search.seed, 18446744073709551615U);
  EXPECT_THAT(search.edits, ElementsAre("comm=p2p", "cp_size=2"));
  EXPECT_THAT(search.filters, ElementsAre("heads>2"));
  EXPECT_TRUE(search.keep_going);
  EXPECT_EQ(search.shrink_time, milliseconds{5000});
  EXPECT_EQ(search.found, "off");
  EXPECT_EQ(search.execution.config.max_consecutive_timeouts, 2);
}

TEST(SearchOptions, WithANumberOfCasesHaveNoTimeUnlessItIsGiven) {
  EXPECT_EQ(parse_as<SearchOptions>({"search", "--cases", "50"}).time, milliseconds{0});
  EXPECT_EQ(parse_as<SearchOptions>({"search", "--cases", "0"}).time, milliseconds{60'000});
  EXPECT_EQ(parse_as<SearchOptions>({"search", "--cases", "50", "--time", "2s"}).time, milliseconds{2000});
}

TEST(SearchOptions, ThatMakeNoSenseAreRefused) {
  EXPECT_THAT(usage_error({"search", "--seed", "seven"}), HasSubstr("'seven' is no whole number of at most 64 bits"));
  EXPECT_THAT(usage_error({"search", "--seed", "-1"}), HasSubstr("is no whole number"));
  EXPECT_THAT(usage_error({"search", "--found", ""}), HasSubstr("the path is empty"));
  EXPECT_THAT(usage_error({"search", "--cases", "-3"}), HasSubstr("'-3' is negative"));
  EXPECT_THAT(usage_error({"search", "quick"}), HasSubstr("quick"));
}

}  // namespace
}  // namespace cp_pool
