#include "worker/protocol/line_framer.h"

#include <gmock/gmock.h>

#include "worker/protocol/messages.h"

namespace cp_pool::protocol {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Returns "M:text", "C:text", "C+:text" (cut) or "O:length".
std::string describe(const Line& line) {
  if (line.kind == Line::Kind::over_long) return "O:" + std::to_string(line.text.size());
  return std::string(line.kind == Line::Kind::message ? "M" : "C") + (line.cut ? "+:" : ":") + line.text;
}

std::vector<std::string> feed(LineFramer& framer, std::string_view bytes) {
  std::vector<std::string> out;
  for (const Line& line : framer.feed(bytes)) out.push_back(describe(line));
  return out;
}

TEST(LineFramer, TellsMessagesFromChatter) {
  LineFramer framer(LineFramer::Stream::responses);
  EXPECT_THAT(feed(framer, "hello\n\n[CP_POOL_RESP] {\"a\":1}\n x [CP_POOL_RESP] {}\n[CP_POOL_RESP]{}\n"),
              ElementsAre("C:hello", "M:{\"a\":1}", "C: x [CP_POOL_RESP] {}", "C:[CP_POOL_RESP]{}"));
}

TEST(LineFramer, NumbersLinesAsAnEditorDoes) {
  LineFramer framer(LineFramer::Stream::requests);
  std::vector<std::size_t> numbers;
  for (const char* const bytes : {"a\n\n\nb", "c\n", "\nd\n"}) {
    for (const Line& line : framer.feed(bytes)) numbers.push_back(line.number);
  }
  EXPECT_THAT(numbers, ElementsAre(1U, 4U, 6U));
  EXPECT_THAT(framer.feed("abc"), IsEmpty());
  EXPECT_EQ(framer.line_number(), 7U);
  EXPECT_EQ(framer.line_bytes(), 3U);
}

TEST(LineFramer, EveryRequestLineIsAMessage) {
  LineFramer framer(LineFramer::Stream::requests);
  EXPECT_THAT(feed(framer, "{}\n\nnonsense\n"), ElementsAre("M:{}", "M:nonsense"));
}

TEST(LineFramer, EveryLogLineIsChatter) {
  LineFramer framer(LineFramer::Stream::log);
  EXPECT_THAT(feed(framer, "[CP_POOL_RESP] {}\n"), ElementsAre("C:[CP_POOL_RESP] {}"));
}

TEST(LineFramer, GivesTheSameLinesHoweverTheBytesArrive) {
  const std::string bytes = "one\n\n[CP_POOL_RESP] {\"seq\":1}\n[CP_POOL\n[CP_POOL_RESP] \ntail\n";
  LineFramer whole(LineFramer::Stream::responses);
  const std::vector<std::string> expected = feed(whole, bytes);
  ASSERT_THAT(expected, testing::SizeIs(5));
  for (std::size_t step = 1; step < bytes.size(); ++step) {
    LineFramer framer(LineFramer::Stream::responses);
    std::vector<std::string> got;
    for (std::size_t i = 0; i < bytes.size(); i += step) {
      for (std::string& line : feed(framer, std::string_view{bytes}.substr(i, step))) got.push_back(std::move(line));
    }
    EXPECT_EQ(got, expected) << "in steps of " << step;
  }
}

TEST(LineFramer, APartialLineWaitsAndIsGivenAtTheEnd) {
  LineFramer framer(LineFramer::Stream::responses);
  EXPECT_THAT(feed(framer, "[CP_POOL_RESP] {\"half"), IsEmpty());
  const auto rest = framer.rest();
  ASSERT_TRUE(rest.has_value());
  EXPECT_EQ(describe(*rest), "C:[CP_POOL_RESP] {\"half");
  EXPECT_FALSE(framer.rest().has_value());
}

TEST(LineFramer, CutsChatterAndDropsTheRestOfItsLine) {
  LineFramer framer(LineFramer::Stream::responses);
  const std::string longest(kMaxChatterBytes, 'x');
  EXPECT_THAT(feed(framer, longest + "\n"), ElementsAre("C:" + longest));
  EXPECT_THAT(feed(framer, longest + "yz"), ElementsAre("C+:" + longest));
  EXPECT_THAT(feed(framer, std::string(3 * kMaxChatterBytes, 'y') + "\nnext\n"), ElementsAre("C:next"));
}

TEST(LineFramer, TakesAMessageOfTheLargestSize) {
  LineFramer framer(LineFramer::Stream::responses);
  const std::string body(kMaxLineBytes, 'x');
  EXPECT_THAT(framer.feed("[CP_POOL_RESP] "), IsEmpty());
  EXPECT_THAT(framer.feed(body), IsEmpty());
  const std::vector<Line> lines = framer.feed("\n");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].kind, Line::Kind::message);
  EXPECT_EQ(lines[0].text.size(), kMaxLineBytes);
}

TEST(LineFramer, ReportsAnOverLongMessageBeforeItsNewlineAndGoesOn) {
  for (const auto stream : {LineFramer::Stream::responses, LineFramer::Stream::requests}) {
    LineFramer framer(stream);
    const std::string prefix(stream == LineFramer::Stream::responses ? kResponsePrefix : "");
    EXPECT_THAT(feed(framer, prefix + std::string(kMaxLineBytes + 1, 'x')),
                ElementsAre("O:" + std::to_string(kMaxChatterBytes)));
    EXPECT_THAT(feed(framer, "rest\n" + prefix + "{}\n"), ElementsAre("M:{}"));
  }
}

TEST(Fence, IsReadBackAsWritten) {
  LineFramer framer(LineFramer::Stream::log);
  const std::vector<Line> lines = framer.feed("no newline before" + format_fence(12));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(parse_fence(lines[0].text), std::nullopt);
  EXPECT_EQ(parse_fence(lines[1].text), 12);
}

TEST(Fence, IsNotFoundInOtherText) {
  for (const char* text : {"", "[CP_POOL_FENCE] ", "[CP_POOL_FENCE] x", "[CP_POOL_FENCE] 1 ", " [CP_POOL_FENCE] 1",
                           "[CP_POOL_FENCE] 99999999999999999999"}) {
    EXPECT_EQ(parse_fence(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace cp_pool::protocol
