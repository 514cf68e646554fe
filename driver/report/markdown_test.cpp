#include "driver/report/markdown.h"

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

TEST(Markdown, TextShowsItselfAndNothingElse) {
  EXPECT_EQ(markdown_text("rank 1: dq is wrong, see a-b.c (1)!"), "rank 1: dq is wrong, see a-b.c (1)!");
  EXPECT_EQ(markdown_text("a | *b* _c_ `d` [e](f) ~g~ #1 \\"),
            "a \\| \\*b\\* \\_c\\_ \\`d\\` \\[e\\](f) \\~g\\~ \\#1 \\\\");
  EXPECT_EQ(markdown_text("<img src=x> & @user"), "&#60;img src=x&#62; &#38; &#64;user");
  EXPECT_EQ(markdown_text("two\nlines\tand"), "two lines and");
  EXPECT_EQ(markdown_text("https://x.y"), "https\\://x.y");
  EXPECT_EQ(markdown_text("- one"), "\\- one");
  EXPECT_EQ(markdown_text("12. twelve"), "12\\. twelve");
  EXPECT_EQ(markdown_text(""), "");
}

TEST(Markdown, CodeMayHoldBackticksAndBars) {
  EXPECT_EQ(markdown_code("te-flash/cp_2_0"), "`te-flash/cp_2_0`");
  EXPECT_EQ(markdown_code("a|b"), "`a\\|b`");
  EXPECT_EQ(markdown_code("a``b"), "```a``b```");
  EXPECT_EQ(markdown_code("`a"), "`` `a ``");
  EXPECT_EQ(markdown_code("a\nb"), "`a b`");
  EXPECT_EQ(markdown_code(""), "");
}

TEST(Markdown, ABlockEndsWhereItsTextDoes) {
  EXPECT_EQ(markdown_block("a\nb"), "```text\na\nb\n```\n");
  EXPECT_EQ(markdown_block("a\n"), "```text\na\n```\n");
  EXPECT_EQ(markdown_block("```\n<b>\n````\n"), "`````text\n```\n<b>\n````\n`````\n");
}

TEST(Markdown, TextOfAnElementIsNoMarkup) {
  EXPECT_EQ(html_escaped("<b> & \"c\"\nd"), "&#60;b&#62; &#38; &#34;c&#34; d");
}

}  // namespace
}  // namespace cp_pool
