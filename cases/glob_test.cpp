#include "cases/glob.h"

#include <string>

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

TEST(Glob, PlainTextMatchesItself) {
  EXPECT_TRUE(glob_matches("a/b+c", "a/b+c"));
  EXPECT_FALSE(glob_matches("a", "ab"));
  EXPECT_FALSE(glob_matches("ab", "a"));
  EXPECT_TRUE(glob_matches("", ""));
  EXPECT_FALSE(glob_matches("", "a"));
}

TEST(Glob, StarMatchesAnythingAcrossSlashes) {
  EXPECT_TRUE(glob_matches("*", ""));
  EXPECT_TRUE(glob_matches("te/*/pad", "te/m/p2p/cp2/pad"));
  EXPECT_TRUE(glob_matches("*thd*", "te/m/thd/bf16"));
  EXPECT_TRUE(glob_matches("a*", "a"));
  EXPECT_TRUE(glob_matches("*ab*ab", "abxabab"));
  EXPECT_FALSE(glob_matches("*ab*ab", "abxabb"));
  EXPECT_FALSE(glob_matches("a*b", "a/c"));
}

TEST(Glob, QuestionMarkMatchesOneCharacter) {
  EXPECT_TRUE(glob_matches("cp_?_0", "cp_3_0"));
  EXPECT_FALSE(glob_matches("cp_?_0", "cp__0"));
  EXPECT_FALSE(glob_matches("?", ""));
}

TEST(Glob, ManyStarsEndSoon) {
  std::string glob;
  for (int i = 0; i < 200; ++i) glob += "*a";
  EXPECT_FALSE(glob_matches(glob + "b", std::string(5000, 'a')));
}

TEST(Glob, KnowsWildcards) {
  EXPECT_TRUE(has_wildcard("a*"));
  EXPECT_TRUE(has_wildcard("?"));
  EXPECT_FALSE(has_wildcard("a+b/c=1"));
}

}  // namespace
}  // namespace cp_pool
