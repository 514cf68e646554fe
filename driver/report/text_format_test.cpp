#include "driver/report/text_format.h"

#include <limits>

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

TEST(FormatDuration, PicksTheUnitAndKeepsThreeDigits) {
  EXPECT_EQ(format_duration(0.44), "0.4 ms");
  EXPECT_EQ(format_duration(9.96), "10 ms");
  EXPECT_EQ(format_duration(312.4), "312 ms");
  EXPECT_EQ(format_duration(999.6), "1.00 s");
  EXPECT_EQ(format_duration(41234), "41.2 s");
  EXPECT_EQ(format_duration(59960), "1 m 00 s");
  EXPECT_EQ(format_duration(123000), "2 m 03 s");
  EXPECT_EQ(format_duration(3725000), "1 h 02 m");
}

TEST(FormatClock, RoundsUpSoThatItEndsAtZero) {
  EXPECT_EQ(format_clock(0), "0:00");
  EXPECT_EQ(format_clock(6.1), "0:07");
  EXPECT_EQ(format_clock(3723), "1:02:03");
}

TEST(FormatFigure, KeepsThreeDigitsAndNamesNonFiniteNumbers) {
  EXPECT_EQ(format_figure(0.0312345), "0.0312");
  EXPECT_EQ(format_figure(1.5e-9), "1.5e-09");
  EXPECT_EQ(format_figure(std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(format_figure(-std::numeric_limits<double>::infinity()), "-inf");
}

TEST(CountOf, KnowsThePlural) {
  EXPECT_EQ(count_of(0, "case"), "0 cases");
  EXPECT_EQ(count_of(1, "case"), "1 case");
  EXPECT_EQ(count_of(2, "rank"), "2 ranks");
}

TEST(CutMiddle, KeepsBeginningAndEndAndCountsColumnsNotBytes) {
  EXPECT_EQ(cut_middle("0123456789", 10), "0123456789");
  EXPECT_EQ(cut_middle("0123456789", 9), "01..56789");
  EXPECT_EQ(cut_middle("\u00e4\u00f6\u00fc\u00e4\u00f6\u00fc\u00e4", 7), "\u00e4\u00f6\u00fc\u00e4\u00f6\u00fc\u00e4");
  EXPECT_EQ(cut_middle("\u00e4\u00f6\u00fc\u00e4\u00f6\u00fc\u00e4", 6), "\u00e4..\u00f6\u00fc\u00e4");
  EXPECT_EQ(cut_middle("abcdef", 2), "ab");
  EXPECT_EQ(cut_middle("abcdef", 0), "");
}

TEST(CutMiddle, CutsBetweenWords) {
  const std::string text = "out: error beyond the bound in 5 of 512 rows";
  EXPECT_EQ(cut_middle(text, 40), "out: error .. bound in 5 of 512 rows");
  for (std::size_t count = 20; count < text.size(); ++count) {
    const std::string cut = cut_middle(text, count);
    EXPECT_LE(cut.size(), count);
    const std::size_t gap = cut.find("..");
    ASSERT_NE(gap, std::string::npos);
    const std::string head = cut.substr(0, gap);
    const std::string tail = cut.substr(gap + 2);
    EXPECT_TRUE(text.starts_with(head) && head.ends_with(' ')) << cut;
    EXPECT_TRUE(text.ends_with(tail) && tail.starts_with(' ')) << cut;
  }
}

TEST(CutMiddle, CutsAWordThatAloneIsTooLongInside) {
  EXPECT_EQ(cut_middle("te-flash/cp_2_2/p2p/cp2/thd/bf16/pad failed", 20), "te-fla.. failed");
  EXPECT_EQ(cut_middle("failed: te-flash/cp_2_2/p2p/cp2/thd/bf16/pad", 24), "failed: ..thd/bf16/pad");
}

TEST(PrefixLines, PrefixesEveryLineAndEndsEachWithANewline) {
  EXPECT_EQ(prefix_lines("a\nb", "> "), "> a\n> b\n");
  EXPECT_EQ(prefix_lines("a\n\nb\n", "> "), "> a\n> \n> b\n");
  EXPECT_EQ(prefix_lines("", "> "), "");
}

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
