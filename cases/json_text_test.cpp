#include "cases/json_text.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/case_error.h"
#include "cases/testing/error_text.h"
#include "cases/testing/temporary_folder.h"

namespace cp_pool {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string parse_error_of(const std::string& text) {
  return test::error_text([&] { parse_json_text(text, "a.json"); });
}

TEST(JsonText, KeepsTheOrderOfKeys) {
  EXPECT_EQ(parse_json_text(R"({"b":1,"a":[2,{"z":null,"c":"x"}]})", "a.json").dump(),
            R"({"b":1,"a":[2,{"z":null,"c":"x"}]})");
}

TEST(JsonText, SyntaxErrorsNameLineAndColumn) {
  EXPECT_THAT(parse_error_of("{\n  \"a\": 1,\n  \"b\": nope\n}"), StartsWith("a.json:3:9: not JSON: "));
  EXPECT_THAT(parse_error_of("{\"a\" 1}"), StartsWith("a.json:1:6: not JSON: "));
  EXPECT_THAT(parse_error_of("{\"a\": 1}\n}"), StartsWith("a.json:2:1: not JSON: "));
  EXPECT_THAT(parse_error_of("[1,\n 2"), StartsWith("a.json:2:3: not JSON: "));
  EXPECT_THAT(parse_error_of(""), StartsWith("a.json:1:1: not JSON: "));
  EXPECT_THAT(parse_error_of("[1e999]"), StartsWith("a.json:1:6: not JSON: "));
  EXPECT_THAT(parse_error_of("[\"\xff\"]"), StartsWith("a.json:1:"));
}

TEST(JsonText, AKeyGivenTwiceIsAnError) {
  EXPECT_EQ(parse_error_of(R"({"a":{"x":1},"b":[{}, {"c":1,"d":[1],"c":2}]})"),
            "a.json: $.b[1].c: this key is given twice");
  EXPECT_EQ(parse_error_of(R"([{"a":1},{"a":1}])"), "no error");
}

TEST(JsonText, NestingIsBounded) {
  EXPECT_EQ(parse_error_of(std::string(64, '[') + std::string(64, ']')), "no error");
  EXPECT_THAT(parse_error_of(std::string(65, '[') + std::string(65, ']')), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(parse_error_of(std::string(100000, '[')), HasSubstr("nested more than 64 deep"));
}

TEST(JsonText, AnIntegerThatDoesNotFitIsNamedAsItWasWritten) {
  EXPECT_EQ(parse_error_of(R"({"seed": 18446744073709551616})"),
            "a.json: $.seed: 18446744073709551616 does not fit into 64 bits");
  EXPECT_EQ(parse_error_of(R"({"seqlens": [1, -9223372036854775809]})"),
            "a.json: $.seqlens[1]: -9223372036854775809 does not fit into 64 bits");
  EXPECT_EQ(parse_error_of("[18446744073709551615, -9223372036854775808, 1e30, 18446744073709551616.0]"), "no error");
}

TEST(JsonText, WhatStandsBehindANulByteIsNotPassedOver) {
  using namespace std::string_literals;
  EXPECT_EQ(parse_error_of("{\"a\": 1}\n\0{"s), "a.json:2:1: not JSON: a NUL byte");
  EXPECT_EQ(parse_error_of("\0"s), "a.json:1:1: not JSON: a NUL byte");
}

TEST(JsonText, LinesMayCountFromAnother) {
  EXPECT_THAT(test::error_text([] { parse_json_text("{\"a\" 1}", "<stdin>", 7); }),
              StartsWith("<stdin>:7:6: not JSON"));
}

TEST(JsonText, ReadsFiles) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "a.json";
  test::write_file(path, "{\"a\": 1}");
  EXPECT_EQ(read_json_file(path).dump(), "{\"a\":1}");
  test::write_file(path, "{\"a\": ");
  EXPECT_THROW(read_json_file(path), CaseError);
}

TEST(JsonText, UnreadableFilesAreNamedWithTheReason) {
  const auto error = [](const std::string& path) { return test::error_text([&] { read_json_file(path); }); };
  EXPECT_EQ(error("/no/such.json"), "/no/such.json: cannot be read: No such file or directory");
  EXPECT_EQ(error("/"), "/: cannot be read: it is a folder");
}

}  // namespace
}  // namespace cp_pool
