#include "cases/call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/testing/error_text.h"

namespace cp_pool {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string error_of_call(const Json& json) {
  return test::error_text([&] { parse_call(json, "calls.json"); });
}

TEST(Call, IsReadFromItsJson) {
  const Call call = parse_call({{"function", "tests.sums:all_reduce"}, {"arguments", {{"n", 3}}}, {"cp_size", 4}}, "x");
  EXPECT_EQ(call.function, "tests.sums:all_reduce");
  EXPECT_EQ(call.arguments, Json({{"n", 3}}));
  EXPECT_EQ(call.cp_size, 4);
  EXPECT_EQ(parse_call(to_json(call), "x"), call);
  EXPECT_EQ(parse_call({{"function", "m:f"}}, "x"), (Call{.function = "m:f"}));
}

TEST(Call, ErrorsNameThePlace) {
  EXPECT_THAT(error_of_call({{"arguments", Json::object()}}), HasSubstr("calls.json: $: 'function' is missing"));
  for (const char* const wrong : {"", "m", "m:", ":f", "m f:g"}) {
    EXPECT_THAT(error_of_call({{"function", wrong}}), HasSubstr("$.function")) << wrong;
  }
  EXPECT_THAT(error_of_call({{"function", "m:f"}, {"arguments", {1}}}), HasSubstr("$.arguments"));
  EXPECT_THAT(error_of_call({{"function", "m:f"}, {"cp_size", 0}}), HasSubstr("0 is no number of ranks"));
  EXPECT_THAT(error_of_call({{"function", "m:f"}, {"ranks", 2}}), HasSubstr("ranks"));
}

TEST(Call, IsNamedByModuleFunctionAndArguments) {
  const Call of_file{.function = "/home/me/tests/test_sums.py:TestSums.test_one"};
  EXPECT_EQ(module_of(of_file), "test_sums");
  EXPECT_EQ(name_of(of_file), "TestSums.test_one");
  EXPECT_EQ(module_of({.function = "test_sums.py:f"}), "test_sums");
  EXPECT_EQ(module_of({.function = "a.b:f"}), "a.b");
  EXPECT_THAT(call_id({.function = "a.b:f"}), MatchesRegex("a.b/f/cp2/hash=[0-9a-f]{10}"));
  EXPECT_NE(call_id({.function = "a.b:f", .arguments = {{"n", 1}}}),
            call_id({.function = "a.b:f", .arguments = {{"n", 2}}}));
}

TEST(Call, SpellsArgumentsAsFiltersDo) {
  EXPECT_EQ(argument_text("bf16"), "bf16");
  EXPECT_EQ(argument_text(3), "3");
  EXPECT_EQ(argument_text(true), "true");
  EXPECT_EQ(argument_text({1, 2}), "[1,2]");
  EXPECT_EQ(argument_text(nullptr), "null");
}

}  // namespace
}  // namespace cp_pool
