#include "worker/protocol/text_clean.h"

#include <gtest/gtest.h>

namespace cp_pool::protocol {
namespace {

TEST(ToValidUtf8, KeepsValidText) {
  const std::string text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\n";
  EXPECT_EQ(to_valid_utf8(text), text);
}

TEST(ToValidUtf8, ReplacesEachMaximalInvalidSequence) {
  EXPECT_EQ(to_valid_utf8("\xff"), "\xef\xbf\xbd");
  EXPECT_EQ(to_valid_utf8("a\xe2\x82z"), "a\xef\xbf\xbdz");                          // truncated: one replacement
  EXPECT_EQ(to_valid_utf8("\xc0\xaf"), "\xef\xbf\xbd\xef\xbf\xbd");                  // overlong
  EXPECT_EQ(to_valid_utf8("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");  // surrogate
  EXPECT_EQ(to_valid_utf8("\xf4\x90\x80\x80").size(), 12U);                          // above U+10FFFF
  EXPECT_EQ(to_valid_utf8("end\xf0\x9f"), "end\xef\xbf\xbd");                        // at the end of the text
}

TEST(CleanText, ShowsControlCharactersEscaped) {
  EXPECT_EQ(clean_text(std::string_view{"a\0b\x07\x7f", 5}), R"(a\x00b\x07\x7f)");
  EXPECT_EQ(clean_text("\x1b[31mred"), R"(\x1b[31mred)");
  EXPECT_EQ(clean_text("\xc2\x9b"), R"(\u{009b})");  // C1: a one-byte CSI to some terminals
  EXPECT_EQ(clean_text("\xc2\x80|\xc2\x9f|\xc2\xa0"), "\\u{0080}|\\u{009f}|\xc2\xa0");
  EXPECT_EQ(clean_text(std::string{"\xe2\x80"} + "\xae"), R"(\u{202e})");  // right-to-left override
}

TEST(CleanText, KeepsTabsAndNewlinesAndTurnsCrLfIntoNewline) {
  EXPECT_EQ(clean_text("a\tb\r\nc\rd\r"), "a\tb\nc\\x0dd\\x0d");
}

TEST(CleanText, ReplacesWhatXmlForbids) {
  EXPECT_EQ(clean_text("\xef\xbf\xbe|\xef\xbf\xbf|\xff"), "\xef\xbf\xbd|\xef\xbf\xbd|\xef\xbf\xbd");
}

TEST(CleanText, LeavesCleanTextAlone) {
  const std::string clean = clean_text("\x1b]0;title\x07 \xc2\x9b \xff\xe2\x82 \r\r\n \xe2\x80\xae");
  EXPECT_EQ(clean_text(clean), clean);
}

TEST(LinesOfAText, EndAtNewlines) {
  EXPECT_EQ(first_line("a b\nc\n"), "a b");
  EXPECT_EQ(first_line("\nc"), "");
  EXPECT_EQ(first_line("a"), "a");
  EXPECT_EQ(last_line("a\nb c\n\n"), "b c");
  EXPECT_EQ(last_line("a"), "a");
  EXPECT_EQ(last_line("\n"), "");
  EXPECT_EQ(last_line(""), "");
}

TEST(CutText, LeavesShortTextAlone) {
  EXPECT_EQ(cut_text("abc", 3), "abc");
}

TEST(CutText, SaysThatItCutAndStaysWithinTheLimit) {
  const std::string cut = cut_text(std::string(1000, 'x'), 100);
  EXPECT_EQ(cut.size(), 100U);
  EXPECT_TRUE(cut.ends_with("\n[cut: 1000 bytes in all]"));
}

TEST(CutText, CutsBetweenWords) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "seven7 ";
  for (std::size_t limit = 60; limit < 70; ++limit) {
    const std::string cut = cut_text(text, limit);
    EXPECT_LE(cut.size(), limit);
    EXPECT_TRUE(cut.ends_with("seven7\n[cut: 700 bytes in all]")) << cut;
  }
}

TEST(CutText, CutsBetweenCodePoints) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "\xe2\x82\xac";
  for (std::size_t limit = 40; limit < 44; ++limit) {
    const std::string cut = cut_text(text, limit);
    EXPECT_LE(cut.size(), limit);
    EXPECT_EQ(to_valid_utf8(cut), cut);
  }
}

}  // namespace
}  // namespace cp_pool::protocol
