// Tests of Filter::parse_keywords, which `cp-pool run -k` uses.
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/case_id.h"
#include "cases/filter.h"
#include "cases/testing/error_text.h"

namespace cp_pool {
namespace {

using testing::EndsWith;
using testing::StartsWith;

bool keywords_match(std::string_view expression) {
  Case c;
  c.suite = "te-flash";
  c.model = "causal_0";
  c.comm = CommType::a2a_p2p;
  c.layout = Layout::thd;
  c.window = {512, 0};
  const std::string id = case_id(c);
  EXPECT_EQ(id, "te-flash/causal_0/a2a+p2p/cp2/thd/bf16");
  const std::vector<std::string> tags{"essential"};
  return Filter::parse_keywords(expression).matches({.c = c, .tags = tags, .id = id, .size = "small"});
}

std::string keywords_error(std::string_view expression) {
  return test::error_text([&] { Filter::parse_keywords(expression); });
}

TEST(Keywords, AWordIsAPartOfTheIdOrOfATagWhateverItsCase) {
  for (const char* const part : {"p2p", "A2A", "a2a+p2p", "causal", "cp2/thd", "te-", "essen", "flash*thd"}) {
    EXPECT_TRUE(keywords_match(part)) << part;
  }
  for (const char* const part : {"p3p", "sbhd", "cp2/bshd", "window"}) EXPECT_FALSE(keywords_match(part)) << part;
}

TEST(Keywords, HaveTheOperatorsOfPytest) {
  EXPECT_TRUE(keywords_match("p2p and thd"));
  EXPECT_FALSE(keywords_match("p2p and not thd"));
  EXPECT_TRUE(keywords_match("bshd or thd and bf16"));
  EXPECT_FALSE(keywords_match("(bshd or thd) and not (bf16)"));
  EXPECT_TRUE(keywords_match("NOT sbhd AND (fp16 OR bf16)"));
  EXPECT_TRUE(keywords_match("not not thd"));
  EXPECT_TRUE(keywords_match("normal or thd")) << "an operator is a word of its own";
}

TEST(Keywords, HaveWhatFiltersHave) {
  EXPECT_TRUE(keywords_match("comm=a2a* & window=512,0 and thd"));
  EXPECT_FALSE(keywords_match("!thd | cp_size>2"));
}

TEST(Keywords, BlankOnesSelectEverything) {
  EXPECT_TRUE(keywords_match(""));
  EXPECT_TRUE(keywords_match("  "));
}

TEST(Keywords, ErrorsShowThePlace) {
  EXPECT_EQ(keywords_error("p2p thd"), "bad -k: expected 'and' or 'or' here\n  p2p thd\n      ^");
  EXPECT_EQ(keywords_error("p2p and"), "bad -k: expected a part of an ID or FIELD=VALUE here\n  p2p and\n         ^");
  EXPECT_THAT(keywords_error("p2p and or thd"), EndsWith("\n          ^"));
  EXPECT_THAT(keywords_error("(p2p"), StartsWith("bad -k: this parenthesis is not closed"));
  EXPECT_THAT(keywords_error("comm=ring"), StartsWith("bad -k: comm is never 'ring'"));
}

}  // namespace
}  // namespace cp_pool
