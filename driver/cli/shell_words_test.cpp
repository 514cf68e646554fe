#include "driver/cli/shell_words.h"

#include <cstdio>

#include <gtest/gtest.h>

#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

using Words = std::vector<std::string>;

const Words kAwkward = {
    "plain/cp_2_0/a2a+p2p",  "",          "two words", "it's", "\"q\"", "a\\b", "$HOME", "`x`", "*", "!x", "~",
    "comm=p2p & layout=thd", "new\nline", "#x",        "a=b"};
const Words kHidden = {"\x1b[31m\r\n\xff%\\", "\xe2\x80\xae"};

TEST(ShellLine, QuotesOnlyWhatNeedsIt) {
  EXPECT_EQ(shell_line({"cp-pool", "run", "--filter", "te-flash/cp_2_0/a2a+p2p/cp4/thd/bf16/pad"}),
            "cp-pool run --filter te-flash/cp_2_0/a2a+p2p/cp4/thd/bf16/pad");
  EXPECT_EQ(shell_line({"it's", ""}), R"('it'\''s' '')");
}

TEST(ShellLine, IsCleanText) {
  EXPECT_EQ(protocol::clean_text(shell_line(kAwkward)), shell_line(kAwkward));
  EXPECT_EQ(protocol::clean_text(shell_line(kHidden)), shell_line(kHidden));
  EXPECT_EQ(shell_line({"a b\x1b[0m"}), R"x('a b'"$(printf '\033')"'[0m')x");
}

TEST(ShellLine, AShellReadsTheWordsBackExactly) {
  Words command = {"printf", "%s|"};
  std::string expected;
  for (const Words& words : {kAwkward, kHidden}) {
    for (const std::string& word : words) {
      command.push_back(word);
      expected += word + "|";
    }
  }
  FILE* pipe = ::popen(shell_line(command).c_str(), "r");
  std::string output;
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) output += static_cast<char>(c);
  EXPECT_EQ(::pclose(pipe), 0);
  EXPECT_EQ(output, expected);
}

TEST(SplitWords, ReadsBackWhatShellLineWrites) {
  EXPECT_EQ(split_words(shell_line(kAwkward)), kAwkward);
}

TEST(SplitWords, FollowsTheShellsQuotes) {
  EXPECT_EQ(split_words(R"(python3  "a b" 'c d'e \  "x\"y\z")"), (Words{"python3", "a b", "c de", " ", "x\"y\\z"}));
  EXPECT_EQ(split_words("  "), Words{});
  EXPECT_EQ(split_words("'open"), std::nullopt);
}

}  // namespace
}  // namespace cp_pool
