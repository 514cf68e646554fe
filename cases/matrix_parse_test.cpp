#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/case_error.h"
#include "cases/json_text.h"
#include "cases/matrix.h"
#include "cases/testing/error_text.h"

namespace cp_pool {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::string_view kMatrix = R"({
  "suite": "s",
  "about": "what it is for",
  "seed": 7,
  "defaults": {"seqlen_q": 64, "seqlen_kv": 64},
  "axes": {"dtype": ["bf16", "fp16"]},
  "models": {"m": {"heads": 4, "kv_heads": 4, "head_dim_qk": 8, "head_dim_v": 8,
                   "axes": {"layout": ["bshd", "thd"]}, "tags": ["t"], "about": "a model"}},
  "rules": [{"about": "a rule", "when": "layout=thd", "set": {"causal": true}, "tags": ["u"]}],
  "exclude": ["dtype=fp16 & layout=thd"],
  "optional": ["tag=u"],
  "sizes": {"full": {}, "small": {"axes": {"dtype": ["fp32"]}, "divide": {"window": 2}, "heads": {"4/4": "2/1"}}}
})";

// Returns the error of parsing the matrix with the value at a JSON pointer replaced.
std::string error_with(const char* pointer, std::string_view value) {
  Json json = parse_json_text(kMatrix, "m.json");
  json[Json::json_pointer(pointer)] = parse_json_text(value, "value");
  return test::error_text([&] { parse_matrix(json, "m.json"); });
}

std::string error_without(const char* key) {
  Json json = parse_json_text(kMatrix, "m.json");
  json.erase(key);
  return test::error_text([&] { parse_matrix(json, "m.json"); });
}

TEST(MatrixParse, ReadsEveryPart) {
  const Matrix matrix = parse_matrix(parse_json_text(kMatrix, "m.json"), "m.json");
  EXPECT_EQ(matrix.suite, "s");
  EXPECT_EQ(matrix.about, "what it is for");
  EXPECT_EQ(matrix.defaults.size(), 3U);
  EXPECT_EQ(matrix.defaults.at(2).field->name, "seed");
  EXPECT_EQ(matrix.axes.at(0).values.size(), 2U);
  EXPECT_EQ(matrix.models.at(0).name, "m");
  EXPECT_EQ(matrix.models.at(0).axes.at(0).field->name, "layout");
  EXPECT_EQ(matrix.rules.at(0).set.at(0).field->name, "causal");
  EXPECT_EQ(matrix.excludes.size(), 1U);
  EXPECT_EQ(matrix.optional.size(), 1U);
  ASSERT_EQ(matrix.sizes.size(), 2U);
  EXPECT_EQ(matrix.sizes[1].heads.at({4, 4}), (MatrixSize::Heads{2, 1}));
}

TEST(MatrixParse, SuiteModelsAndSizesAreRequired) {
  EXPECT_EQ(error_without("suite"), "m.json: $: 'suite' is missing");
  EXPECT_EQ(error_without("models"), "m.json: $: 'models' is missing");
  EXPECT_EQ(error_without("sizes"), "m.json: $: 'sizes' is missing");
  EXPECT_EQ(error_with("/models", "{}"), "m.json: $.models: a matrix needs at least one model");
  EXPECT_EQ(error_with("/sizes", "{}"), "m.json: $.sizes: a matrix needs at least one size");
  for (const char* optional : {"about", "seed", "defaults", "rules", "exclude", "optional"}) {
    EXPECT_EQ(error_without(optional), "no error") << optional;
  }
}

TEST(MatrixParse, UnknownKeysAreErrorsWithASuggestion) {
  EXPECT_THAT(error_with("/modles", "{}"),
              StartsWith("m.json: $.modles: unknown key \"modles\"; did you mean 'models'?"));
  EXPECT_THAT(error_with("/models/m/head", "4"),
              StartsWith("m.json: $.models.m.head: unknown key \"head\"; did you mean 'heads'?"));
  EXPECT_THAT(error_with("/models/m/tag", "[]"), HasSubstr("did you mean 'tags'?"));
  EXPECT_THAT(error_with("/defaults/batsch", "4"), StartsWith("m.json: $.defaults.batsch: unknown key"));
  EXPECT_THAT(error_with("/axes/dtypes", "[]"), StartsWith("m.json: $.axes.dtypes: unknown key"));
  EXPECT_THAT(error_with("/rules/0/then", "{}"), StartsWith("m.json: $.rules[0].then: unknown key"));
  EXPECT_THAT(error_with("/rules/0/set/x", "1"), StartsWith("m.json: $.rules[0].set.x: unknown key"));
  EXPECT_THAT(error_with("/sizes/small/scale", "{}"), StartsWith("m.json: $.sizes.small.scale: unknown key"));
  EXPECT_THAT(error_with("/sizes/small/divide/heads", "2"),
              StartsWith("m.json: $.sizes.small.divide.heads: unknown key"));
}

TEST(MatrixParse, ValuesAreCheckedWhereTheyStand) {
  EXPECT_EQ(error_with("/suite", "7"), "m.json: $.suite: 7 is not a string");
  EXPECT_EQ(error_with("/models/m/about", "7"), "m.json: $.models.m.about: 7 is not a string");
  EXPECT_EQ(error_with("/rules/0/about", "7"), "m.json: $.rules[0].about: 7 is not a string");
  EXPECT_EQ(error_with("/seed", "-7"), "m.json: $.seed: -7 is negative");
  EXPECT_EQ(error_with("/models", "[]"), "m.json: $.models: an array of 0 is not an object");
  EXPECT_EQ(error_with("/models/m/heads", "\"4\""), "m.json: $.models.m.heads: \"4\" is not an integer");
  EXPECT_EQ(error_with("/axes/dtype/1", "\"fp8\""), "m.json: $.axes.dtype[1]: \"fp8\" is not fp32, bf16 or fp16");
  EXPECT_EQ(error_with("/models/m/axes/layout", "\"thd\""), "m.json: $.models.m.axes.layout: \"thd\" is not an array");
  EXPECT_EQ(error_with("/rules/0/set/causal", "1"), "m.json: $.rules[0].set.causal: 1 is not true or false");
  EXPECT_EQ(error_with("/models/m/tags/0", "\"a b\"").substr(0, 41), "m.json: $.models.m.tags[0]: \"a b\" is not ");
  EXPECT_THAT(error_with("/models/a=b", "{}"), StartsWith("m.json: $.models[\"a=b\"]: \"a=b\" is not a name"));
  EXPECT_THAT(error_with("/suite", "\"a/b\""), StartsWith("m.json: $.suite: \"a/b\" is not a name"));
  EXPECT_EQ(error_with("/sizes/small/divide/window", "0"), "m.json: $.sizes.small.divide.window: 0 is not a divisor");
  for (const char* bad :
       {"\"4\"", "\"4/\"", "\"/4\"", "\"4/0\"", "\"-4/4\"", "\"4/4/4\"", "\"\"", "\"4/99999999999999999999\""}) {
    EXPECT_THAT(error_with("/sizes/small/heads/4~14", bad), HasSubstr("is not HEADS/KV_HEADS")) << bad;
  }
}

TEST(MatrixParse, AnAxisHasValuesAndEachOnce) {
  EXPECT_EQ(error_with("/axes/dtype", "[]"), "m.json: $.axes.dtype: an axis needs at least one value");
  EXPECT_EQ(error_with("/axes/dtype/1", "\"bf16\""), "m.json: $.axes.dtype[1]: \"bf16\" is given twice");
}

TEST(MatrixParse, AKeyIsEitherSetOrAnAxis) {
  EXPECT_EQ(error_with("/defaults/dtype", "\"bf16\""), "m.json: $.defaults.dtype: this key is an axis of the file too");
  EXPECT_EQ(error_with("/models/m/layout", "\"thd\""),
            "m.json: $.models.m.layout: this key is an axis of the model too");
}

TEST(MatrixParse, NamesAreSetForTheWholeFile) {
  EXPECT_EQ(error_with("/models/m/model", "\"x\""),
            "m.json: $.models.m.model: 'model' is set for the whole file, not here");
  EXPECT_EQ(error_with("/rules/0/set/suite", "\"x\""),
            "m.json: $.rules[0].set.suite: 'suite' is set for the whole file, not here");
}

TEST(MatrixParse, TheSeedIsSetForTheWholeFileOnce) {
  EXPECT_EQ(error_with("/defaults/seed", "1"), "m.json: $.defaults.seed: this key is set for the whole file too");
  EXPECT_EQ(error_with("/axes/seed", "[1]"), "m.json: $.seed: this key is an axis of the file too");
}

TEST(MatrixParse, FiltersShowTheirCaretAndPlace) {
  EXPECT_THAT(error_with("/exclude/0", "\"dtype=fp16 & layuot=thd\""),
              AllOf(StartsWith("m.json: $.exclude[0]: bad filter: unknown field 'layuot'; did you mean 'layout'?"),
                    HasSubstr("\n  dtype=fp16 & layuot=thd\n               ^")));
  EXPECT_THAT(error_with("/optional/0", "\"id=x\""), StartsWith("m.json: $.optional[0]: bad filter: "));
  EXPECT_THAT(error_with("/rules/0/when", "\"s/*\""), StartsWith("m.json: $.rules[0].when: bad filter: IDs cannot"));
  EXPECT_THAT(error_with("/rules/0/when", "7"), StartsWith("m.json: $.rules[0].when: 7 is not a string"));
}

TEST(MatrixParse, ARuleHasAConditionAndAnEffect) {
  EXPECT_EQ(error_with("/rules/0", R"({"set": {"causal": true}})"), "m.json: $.rules[0]: 'when' is missing");
  EXPECT_EQ(error_with("/rules/0", R"({"when": "layout=thd"})"), "m.json: $.rules[0]: a rule needs 'set' or 'tags'");
}

TEST(MatrixParse, ASizeAddsNoAxis) {
  EXPECT_EQ(error_with("/sizes/small/axes/batch", "[1]"),
            "m.json: $.sizes.small.axes.batch: sizes may replace only axes of the file; a new axis would change IDs");
}

TEST(MatrixParse, ReadsCallsStrictly) {
  const auto error_of_model = [](const std::string& model) {
    return test::error_text([&] {
      parse_matrix(parse_json_text(R"({"suite": "s", "models": {"f": )" + model + "}}", "m.json"), "m.json");
    });
  };
  EXPECT_THAT(error_of_model(R"({"call": "f"})"), testing::HasSubstr("$.models.f.call"));
  EXPECT_THAT(error_of_model(R"({"call": "m:f", "causal": true})"), testing::HasSubstr("causal"));
  EXPECT_THAT(error_of_model(R"({"call": "m:f", "arguments": [1]})"), testing::HasSubstr("$.models.f.arguments"));
  EXPECT_THAT(error_of_model(R"({"call": "m:f", "axes": {"x": []}})"), testing::HasSubstr("at least one value"));
  EXPECT_THAT(error_of_model(R"({"call": "m:f", "axes": {"x": [1, 1]}})"), testing::HasSubstr("given twice"));
  EXPECT_THAT(error_of_model(R"({"call": "m:f", "axes": {"cp_size": [0]}})"), testing::HasSubstr("no number of ranks"));
  EXPECT_THAT(error_of_model(R"({"call": "m:f", "arguments": {"x": 1}, "axes": {"x": [2]}})"),
              testing::HasSubstr("this is given a single value too"));
}

}  // namespace
}  // namespace cp_pool
