#include "driver/cli/config/case_overrides.h"

#include <chrono>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/cli/command_error.h"

namespace cp_pool {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

std::vector<CaseOverride> read(const std::string& text, bool told = false) {
  const ConfigFile file = parse_config(text, "cp-pool.toml", {});
  return read_overrides(
      file.overrides,
      [](const std::string& key, const std::string& value) {
        return key == "timeout" && value == "soon" ? "'soon' is not a duration" : "";
      },
      [told](const std::string&) { return told; });
}

NamedCase named(const std::vector<CaseOverride>& overrides, const std::string& model) {
  MatrixCase c;
  c.c.suite = "s";
  c.c.model = model;
  c.id = "s/" + model;
  NamedCase out;
  apply_overrides(overrides, c, out);
  return out;
}

constexpr const char* kThree = R"(
[[override]]
filter = "model=a"
timeout = "7s"
[[override]]
filter = "s/*"
timeout = 9
xfail = {reason = "issue 5", strict = true}
[[override]]
filter = "model=b"
xfail.reason = "never"
skip.reason = "no room"
)";

TEST(CaseOverrides, TheFirstThatSaysSomethingOfACaseCounts) {
  const auto overrides = read(kThree);
  const NamedCase a = named(overrides, "a");
  EXPECT_EQ(a.timeout, milliseconds{7000});
  EXPECT_EQ(a.expected, (ExpectedFailure{.reason = "issue 5", .strict = true}));
  EXPECT_EQ(a.skip, std::nullopt);
  const NamedCase b = named(overrides, "b");
  EXPECT_EQ(b.timeout, milliseconds{9000});
  EXPECT_EQ(b.expected->reason, "issue 5");
  EXPECT_EQ(b.skip, "no room");
}

TEST(CaseOverrides, LeaveAnOptionThatIsTold) {
  EXPECT_EQ(named(read(kThree, true), "a").timeout, std::nullopt);
}

TEST(CaseOverrides, ErrorsNameTheLine) {
  const auto error = [](const std::string& lines) -> std::string {
    try {
      read("[[override]]\n" + lines);
    } catch (const CommandError& e) {
      EXPECT_EQ(e.code(), ExitCode::usage);
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error("timeout = 3\n"), "cp-pool.toml:1: override: filter is required");
  EXPECT_THAT(error("filter = \"*\"\ntimout = 3\n"),
              HasSubstr("cp-pool.toml:3: override: unknown key 'timout'; did you mean 'timeout'?; there are filter,"));
  EXPECT_EQ(error("filter = \"*\"\ntimeout = \"soon\"\n"),
            "cp-pool.toml:3: override: timeout: 'soon' is not a duration");
  EXPECT_THAT(error("filter = \"modle=a\"\n"), HasSubstr("cp-pool.toml:2: override: "));
  EXPECT_EQ(error("filter = \"*\"\nxfail.strict = true\n"), "cp-pool.toml:3: override: xfail: reason is required");
  EXPECT_EQ(error("filter = \"*\"\nxfail = {reason = \"x\", strict = 1}\n"),
            "cp-pool.toml:3: override: xfail.strict: true or false is wanted");
  EXPECT_THAT(error("filter = \"*\"\nskip.reason = [\"x\"]\n"),
              HasSubstr("cp-pool.toml:3: override: skip.reason: a list"));
  for (const char* key : {"retries", "env.OMP_NUM_THREADS"}) {
    EXPECT_EQ(error(std::string{"filter = \"*\"\n"} + key + " = 2\n"),
              "cp-pool.toml:3: override: '" + std::string{key} +
                  "' holds for all cases of a run and not for some; there are filter, timeout, xfail.reason, "
                  "xfail.strict, skip.reason");
  }
  EXPECT_THAT(error("filter = \"*\"\nskip = \"x\"\n"), HasSubstr("unknown key 'skip'; did you mean"));
}

}  // namespace
}  // namespace cp_pool
