#include "driver/cli/option_kinds.h"

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using std::chrono::milliseconds;

TEST(ParseDuration, SecondsUnlessAUnitSaysOtherwise) {
  EXPECT_EQ(parse_duration("90"), milliseconds{90000});
  EXPECT_EQ(parse_duration("90s"), milliseconds{90000});
  EXPECT_EQ(parse_duration("1.5s"), milliseconds{1500});
  EXPECT_EQ(parse_duration("1500ms"), milliseconds{1500});
  EXPECT_EQ(parse_duration("2m"), milliseconds{120000});
  EXPECT_EQ(parse_duration("1h"), milliseconds{3600000});
  EXPECT_EQ(parse_duration("0"), milliseconds{0});
  EXPECT_EQ(parse_duration("1000h"), milliseconds{3600000000});
}

TEST(ParseDuration, RefusesEverythingElse) {
  for (const char* text :
       {"", "s", "-1", "-0", "1 s", "1x", "1e3", "nan", "inf", "1s2", "99999999999h", "1001h", "+1"}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  }
}

TEST(DurationText, IsReadBack) {
  for (const int ms : {0, 1, 1500, 90000, 3600000}) {
    EXPECT_EQ(parse_duration(duration_text(milliseconds{ms})), milliseconds{ms});
  }
  EXPECT_EQ(duration_text(milliseconds{90000}), "90s");
  EXPECT_EQ(duration_text(milliseconds{1500}), "1500ms");
}

}  // namespace
}  // namespace cp_pool
