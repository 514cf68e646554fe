#include "cases/filter.h"

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/case_id.h"
#include "cases/case_json.h"
#include "cases/did_you_mean.h"
#include "cases/testing/error_text.h"

namespace cp_pool {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class FilterTest : public testing::Test {
 protected:
  FilterTest() {
    c_.suite = "te-flash";
    c_.model = "cp_2_0";
    c_.comm = CommType::a2a_p2p;
    c_.cp_size = 4;
    c_.layout = Layout::thd;
    c_.heads = 32;
    c_.kv_heads = 4;
    c_.seqlen_q = c_.seqlen_kv = 4096;
    c_.window = {512, 0};
    c_.pad_between_seqs = true;
    id_ = case_id(c_) + "/backend=math";
  }

  [[nodiscard]] bool matches(std::string_view expression) const {
    return Filter::parse(expression).matches({.c = c_, .tags = tags_, .id = id_, .size = "small"});
  }

  Case c_;
  std::string id_;
  std::vector<std::string> tags_{"essential", "slow"};
};

std::string filter_error_of(std::string_view expression, Filter::Scope scope = Filter::Scope::everything) {
  return test::error_text([&] { Filter::parse(expression, scope); });
}

TEST_F(FilterTest, APlainIdSelectsExactlyThatCase) {
  EXPECT_EQ(id_, "te-flash/cp_2_0/a2a+p2p/cp4/thd/bf16/pad/backend=math");
  EXPECT_TRUE(matches(id_));
  EXPECT_FALSE(matches("te-flash/cp_2_0/a2a+p2p/cp4/thd/bf16/pad"));
  EXPECT_FALSE(matches("te-flash/cp_2_0/a2a+p2p/cp4/thd/bf16/pad/backend=flash"));
}

TEST_F(FilterTest, GlobsMatchTheWholeId) {
  EXPECT_TRUE(matches("te-flash/*"));
  EXPECT_TRUE(matches("te-flash/*/a2a+p2p/*"));
  EXPECT_TRUE(matches("*thd*"));
  EXPECT_TRUE(matches("*backend=math"));
  EXPECT_TRUE(matches("te-flash/cp_?_0/*"));
  EXPECT_FALSE(matches("te-fused/*"));
  EXPECT_FALSE(matches("*/p2p/*"));
  EXPECT_TRUE(matches("id=te-flash/*"));
  EXPECT_TRUE(matches("id=" + id_));
  EXPECT_FALSE(matches("id!=te-flash/*"));
}

TEST_F(FilterTest, FieldsCompareAsText) {
  EXPECT_TRUE(matches("comm=a2a+p2p"));
  EXPECT_FALSE(matches("comm=a2a"));
  EXPECT_TRUE(matches("comm=a2a*"));
  EXPECT_TRUE(matches("model=cp_2_*"));
  EXPECT_TRUE(matches("model!=cp_3_*"));
  EXPECT_TRUE(matches("window=512,0"));
  EXPECT_TRUE(matches("window!=-1,-1"));
  EXPECT_TRUE(matches("bias=none"));
  EXPECT_TRUE(matches("pad_between_seqs=true"));
  EXPECT_FALSE(matches("causal=true"));
  EXPECT_TRUE(matches("seqlens=none"));
  EXPECT_TRUE(matches("size=small"));
  EXPECT_FALSE(matches("size=full"));
}

TEST_F(FilterTest, NumbersCompare) {
  EXPECT_TRUE(matches("heads=32"));
  EXPECT_TRUE(matches("heads=032"));
  EXPECT_FALSE(matches("heads=3"));
  EXPECT_TRUE(matches("heads!=3"));
  EXPECT_TRUE(matches("heads>31"));
  EXPECT_FALSE(matches("heads>32"));
  EXPECT_TRUE(matches("heads >= 32"));
  EXPECT_TRUE(matches("heads<33"));
  EXPECT_FALSE(matches("heads<32"));
  EXPECT_TRUE(matches("heads<=32"));
  EXPECT_TRUE(matches("kv_heads>-1"));
  EXPECT_TRUE(matches("world_size=4"));
  EXPECT_TRUE(matches("world_size>=4"));
  EXPECT_TRUE(matches("heads=3*"));
}

TEST_F(FilterTest, TheWorldHasTheRanksOfAllGroups) {
  c_.group = 2;
  EXPECT_TRUE(matches("world_size=8"));
  EXPECT_TRUE(matches("world_size>7 & cp_size=4 & group=2"));
  EXPECT_FALSE(matches("world_size=4"));
}

TEST_F(FilterTest, SeedsBeyondInt64Compare) {
  c_.seed = 18446744073709551615U;
  EXPECT_TRUE(matches("seed=18446744073709551615"));
  EXPECT_FALSE(matches("seed=18446744073709551614"));
  EXPECT_TRUE(matches("seed>9223372036854775807"));
  EXPECT_TRUE(matches("seed>-1"));
}

TEST_F(FilterTest, RealNumbersCompare) {
  EXPECT_TRUE(matches("input_scale=1"));
  EXPECT_TRUE(matches("input_scale=1.0"));
  EXPECT_FALSE(matches("input_scale>1"));
  c_.input_scale = 0.125;
  EXPECT_TRUE(matches("input_scale=0.125"));
  EXPECT_TRUE(matches("input_scale=0.12*"));
  EXPECT_FALSE(matches("input_scale!=0.1250"));
  EXPECT_TRUE(matches("input_scale<0.2"));
  EXPECT_TRUE(matches("input_scale>=0.125"));
  EXPECT_FALSE(matches("input_scale>0.125"));
}

TEST_F(FilterTest, TagsHoldIfAnyMatches) {
  EXPECT_TRUE(matches("tag=essential"));
  EXPECT_TRUE(matches("tag=slow"));
  EXPECT_TRUE(matches("tag=ess*"));
  EXPECT_FALSE(matches("tag=other"));
  EXPECT_TRUE(matches("tag!=other"));
  EXPECT_FALSE(matches("tag!=slow"));
  tags_.clear();
  EXPECT_FALSE(matches("tag=*"));
}

TEST_F(FilterTest, AndBindsTighterThanOr) {
  EXPECT_TRUE(matches("heads=32 | heads=1 & heads=2"));
  EXPECT_FALSE(matches("(heads=32 | heads=1) & heads=2"));
  EXPECT_TRUE(matches("heads=1 & heads=2 | heads=32"));
  EXPECT_TRUE(matches("comm=a2a+p2p&layout=thd&!model=cp_3_*"));
  EXPECT_TRUE(matches("comm=a2a+p2p & heads<40 & te-flash/*"));
}

TEST_F(FilterTest, NotBindsToWhatFollows) {
  EXPECT_FALSE(matches("!heads=32"));
  EXPECT_TRUE(matches("!!heads=32"));
  EXPECT_FALSE(matches("!heads=32 & heads=32"));
  EXPECT_TRUE(matches("!(heads=32 & heads=31)"));
  EXPECT_TRUE(matches("!te-fused/*"));
  EXPECT_TRUE(matches(" ( ! heads = 31 ) "));
}

TEST(FilterErrors, PointToThePlace) {
  EXPECT_EQ(filter_error_of("layout=thd & comn=p2p").substr(0, 53),
            "bad filter: unknown field 'comn'; did you mean 'comm'");
  EXPECT_THAT(filter_error_of("layout=thd & comn=p2p"), HasSubstr("\n  layout=thd & comn=p2p\n               ^"));
  EXPECT_THAT(filter_error_of("comn=p2p"), HasSubstr("known: suite, model, backend"));
  EXPECT_EQ(filter_error_of("heads=4 heads=8"), "bad filter: expected & or | here\n  heads=4 heads=8\n          ^");
  EXPECT_EQ(filter_error_of("(heads=4"), "bad filter: this parenthesis is not closed\n  (heads=4\n  ^");
  EXPECT_EQ(filter_error_of("heads=4)"), "bad filter: this parenthesis closes nothing\n  heads=4)\n         ^");
  EXPECT_EQ(filter_error_of("heads="), "bad filter: expected a value here\n  heads=\n        ^");
  EXPECT_EQ(filter_error_of("heads==4"), "bad filter: expected a value here\n  heads==4\n        ^");
  EXPECT_EQ(filter_error_of("heads!4"), "bad filter: expected != or & here\n  heads!4\n       ^");
  EXPECT_EQ(filter_error_of("heads=4 &"),
            "bad filter: expected FIELD=VALUE, an ID or a glob over IDs here\n  heads=4 &\n           ^");
  EXPECT_EQ(filter_error_of(""), "bad filter: expected FIELD=VALUE, an ID or a glob over IDs here\n  \n  ^");
  EXPECT_EQ(filter_error_of("\xc3\xa4\t& heads=4"),
            "bad filter: '\xc3\xa4' is neither FIELD=VALUE nor an ID (suite/model/..) nor a glob with *\n"
            "  \xc3\xa4 & heads=4\n  ^");
  EXPECT_THAT(filter_error_of("*\xc3\xa4*)"), HasSubstr("\n  *\xc3\xa4*)\n     ^"));
}

TEST(FilterErrors, HoldNoControlCharacters) {
  EXPECT_EQ(filter_error_of(std::string_view{"a\0b\x1b=1", 6}),
            "bad filter: unknown field 'a b ' (known: " + join_names(case_field_names()) +
                ", world_size, tag, id, size)\n  a b =1\n  ^");
}

TEST(FilterErrors, ValuesThatAFieldNeverHasAreErrors) {
  EXPECT_EQ(filter_error_of("softmax=off-by-one"),
            "bad filter: softmax is never 'off-by-one'; did you mean 'off_by_one'? (values: vanilla, off_by_one, "
            "learnable)\n  softmax=off-by-one\n          ^");
  EXPECT_THAT(filter_error_of("comm=a2a_p2p"),
              StartsWith("bad filter: comm is never 'a2a_p2p'; did you mean 'a2a+p2p'?"));
  EXPECT_THAT(filter_error_of("causal=yes"), StartsWith("bad filter: causal is never 'yes' (values: true, false)"));
  EXPECT_THAT(filter_error_of("dtype=fp8*"), StartsWith("bad filter: dtype is never 'fp8*'"));
  EXPECT_THAT(filter_error_of("heads=many"), StartsWith("bad filter: 'many' is not a number"));
  EXPECT_THAT(filter_error_of("heads<4*"), StartsWith("bad filter: '4*' is not a number"));
  EXPECT_THAT(filter_error_of("heads<99999999999999999999"),
              HasSubstr("'99999999999999999999' does not fit into 64 bits"));
  EXPECT_THAT(filter_error_of("heads>-99999999999999999999"), HasSubstr("does not fit into 64 bits"));
  EXPECT_THAT(filter_error_of("heads<-"), HasSubstr("'-' is not a number"));
  EXPECT_THAT(filter_error_of("heads=1.5"), StartsWith("bad filter: '1.5' is not a number"));
  EXPECT_THAT(filter_error_of("input_scale=large"), StartsWith("bad filter: 'large' is not a number"));
  EXPECT_THAT(filter_error_of("input_scale<nan"), StartsWith("bad filter: 'nan' is not a number"));
  EXPECT_THAT(filter_error_of("input_scale<1e999"), HasSubstr("'1e999' is too large a number"));
  EXPECT_THAT(filter_error_of("layout<thd"), StartsWith("bad filter: layout is not a number: use = or !="));
  EXPECT_THAT(filter_error_of("tag<4"), StartsWith("bad filter: tag is not a number: use = or !="));
  EXPECT_EQ(filter_error_of("bias=1hss | bias=none | model=anything | tag=anything"), "no error");
}

TEST(FilterErrors, ABareWordIsNoFilter) {
  EXPECT_THAT(filter_error_of("thd"), StartsWith("bad filter: 'thd' is neither FIELD=VALUE nor an ID"));
  EXPECT_THAT(filter_error_of("causa"), HasSubstr("did you mean 'causal'?"));
  EXPECT_THAT(filter_error_of("causal"),
              StartsWith("bad filter: 'causal' is a field: it needs a value, as in causal="));
}

TEST(FilterErrors, RulesHaveNeitherIdNorSize) {
  constexpr auto kScope = Filter::Scope::case_and_tags;
  EXPECT_EQ(filter_error_of("comm=p2p & tag=essential & !model=a*", kScope), "no error");
  EXPECT_THAT(filter_error_of("id=a/*", kScope), StartsWith("bad filter: unknown field 'id'"));
  EXPECT_THAT(filter_error_of("size=full", kScope), StartsWith("bad filter: unknown field 'size'"));
  EXPECT_THAT(filter_error_of("a/*", kScope), StartsWith("bad filter: IDs cannot be used here"));
}

TEST(FilterErrors, NestingIsBounded) {
  EXPECT_EQ(filter_error_of(fmt::format("{:(>90}heads=4{:)>90}", "", "")), "no error");
  EXPECT_THAT(filter_error_of(std::string(100000, '(')), StartsWith("bad filter: nested too deep"));
  EXPECT_THAT(filter_error_of(std::string(100000, '!')), StartsWith("bad filter: nested too deep"));
}

TEST(FilterErrors, LongAlternativesAreFine) {
  std::string expression = "heads=1";
  for (int i = 0; i < 50000; ++i) expression += " | heads=2";
  Case c;
  c.heads = 2;
  EXPECT_TRUE(Filter::parse(expression).matches({.c = c, .tags = {}, .id = "", .size = ""}));
}

TEST(FilterOfCalls, ReadsArguments) {
  Case c;
  c.suite = "s";
  c.cp_size = 4;
  const Call call{.function = "m:f", .arguments = {{"n", 3}, {"dtype", "bf16"}, {"heads", 8}, {"deep", true}}};
  const FilterSubject subject{.c = c, .tags = {}, .id = "s/f/cp4/bf16", .size = "", .call = &call};
  const auto matches = [&](const char* expression) { return Filter::parse(expression).matches(subject); };
  for (const char* const holds :
       {"arg.n=3", "arg.n>=3", "arg.n<3.5", "dtype=bf16", "dtype=b*", "heads>4", "arg.deep=true", "arg.other!=1",
        "cp_size=4", "world_size>2", "suite=s", "arg.n!=4", "comm!=p2p"}) {
    EXPECT_TRUE(matches(holds)) << holds;
  }
  for (const char* const not_so : {"arg.n=4", "arg.n>3", "dtype=fp16", "heads<8", "arg.other=1", "arg.other<1",
                                   "arg.dtype>1", "cp_size=2", "comm=p2p", "batch>=1", "input_scale>=0"}) {
    EXPECT_FALSE(matches(not_so)) << not_so;
  }
  EXPECT_TRUE(Filter::parse_keywords("bf16 and arg.n=3").matches(subject));
  // An attention case has no arguments.
  const FilterSubject attention{.c = c, .tags = {}, .id = "s/f", .size = ""};
  EXPECT_FALSE(Filter::parse("arg.n=3").matches(attention));
  EXPECT_TRUE(Filter::parse("arg.n!=3").matches(attention));
}

}  // namespace
}  // namespace cp_pool
