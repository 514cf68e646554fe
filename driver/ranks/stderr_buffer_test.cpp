#include "driver/ranks/stderr_buffer.h"

#include <initializer_list>
#include <variant>

#include <gmock/gmock.h>

namespace cp_pool {
namespace {

using namespace ::testing;

const std::string kFence1 = "\n[CP_POOL_FENCE] 1\n";
const std::string kFence2 = "\n[CP_POOL_FENCE] 2\n";

// A number begins the case of that seq, a text is read.
StderrBuffer ring_after(std::initializer_list<std::variant<int, std::string>> steps) {
  StderrBuffer ring(3);
  for (const auto& step : steps) {
    if (const auto* const text = std::get_if<std::string>(&step)) {
      ring.feed(*text);
    } else {
      ring.begin_case(std::get<int>(step));
    }
  }
  return ring;
}

// What is known of the case after these steps: its lines, and behind them "..." as long as its fence has not been read,
// "?" if lines of an earlier case may be among them.
std::string case_after(std::initializer_list<std::variant<int, std::string>> steps) {
  StderrBuffer ring = ring_after(steps);
  const StderrTail tail = ring.tail();
  EXPECT_EQ(tail.rank, 3);
  return tail.text + (!ring.complete() ? "..." : tail.fenced ? "" : "?");
}

TEST(StderrBuffer, KeepsTheLinesOfACaseUpToItsFence) {
  EXPECT_EQ(case_after({1, "one\ntw", "o\n"}), "one\ntwo\n...");
  EXPECT_EQ(case_after({1, "one\ntw", "o\n", kFence1}), "one\ntwo\n");
  EXPECT_EQ(case_after({1, "first\n", kFence2}), "first\n...") << "the fence is that of another case";
}

TEST(StderrBuffer, GivesNoCaseWhatWasWrittenBetweenCases) {
  EXPECT_EQ(case_after({"loading\n"}), "loading\n...") << "before the first case";
  EXPECT_EQ(case_after({"loading\n", 1, "first\n", kFence1, "idle\n"}), "first\n");
  EXPECT_EQ(case_after({1, "first\n", kFence1, "idle\n", 2, "second\n", kFence2}), "second\n");
}

TEST(StderrBuffer, TakesWhatARankThatIsThroughWithTheCaseSaysWhenItIsAsked) {
  StderrBuffer ring = ring_after({1, "first\n", kFence1, "idle\n"});
  ring.reopen();
  ring.feed("where I stand\n");
  EXPECT_EQ(ring.tail().text, "first\nidle\nwhere I stand\n");
  EXPECT_TRUE(ring.tail().fenced);
  ring.begin_case(2);
  ring.feed("second\n" + kFence2 + "idle\n");
  EXPECT_EQ(ring.tail().text, "second\n");
}

TEST(StderrBuffer, MayHaveLinesOfTheCaseBeforeUntilItsFenceComes) {
  EXPECT_EQ(case_after({1, "first\n", 2, "late first\n", kFence1, "second\n", kFence2}), "second\n");
  EXPECT_EQ(case_after({1, "first\n", 2, "second\n", kFence2}), "first\nsecond\n?");
}

TEST(StderrBuffer, IsCompleteWithoutAFenceWhenTheStreamHasEnded) {
  StderrBuffer ring = ring_after({1, "dying"});
  EXPECT_FALSE(ring.complete());
  ring.close();
  EXPECT_TRUE(ring.complete());
  EXPECT_EQ(ring.tail().text, "dying\n");
  EXPECT_TRUE(ring.tail().fenced);
}

TEST(StderrBuffer, HasTheLastWordsOfARankThatDiesAfterItsFence) {
  StderrBuffer ring = ring_after({1, "first\n", kFence1, "why I end\n"});
  ring.close();
  EXPECT_EQ(ring.tail().text, "first\nwhy I end\n");
}

TEST(StderrBuffer, KeepsTheLastLinesAndBytesNotStartingInsideACharacter) {
  StderrBuffer ring = ring_after({1});
  for (int i = 0; i < 1000; ++i) ring.feed(std::to_string(i) + "\n");
  EXPECT_THAT(ring.tail().text, AllOf(StartsWith("800\n"), EndsWith("999\n")));
  std::string line;
  while (line.size() < 10000) line += "\u20ac";  // three bytes each
  ring.feed(line + "\n");
  EXPECT_THAT(ring.tail().text, AllOf(SizeIs(AllOf(Gt(kTailBytes - 3), Le(kTailBytes))), Not(HasSubstr("\uFFFD"))));
}

TEST(StderrBuffer, CleansForeignText) {
  EXPECT_EQ(case_after({1, "\x1b[31mred\xff\n"}), "\\x1b[31mred\uFFFD\n...");
}

TEST(StderrBuffer, KnowsTheLastLineOfAllEvenBetweenCases) {
  EXPECT_EQ(ring_after({}).last_line(), "");
  EXPECT_EQ(ring_after({1, "first\n", kFence1, "terminate called"}).last_line(), "terminate called");
}

TEST(StderrBuffer, TheLastLineIsNoneOfAStack) {
  StderrBuffer ring{0};
  ring.feed(
      "cannot start: Too many open files\n"
      "Exception raised from doWait at /t/TCPStore.cpp:603 (most recent call first):\n"
      "frame #0: c10::Error::Error() + 0x9d (0x7f in /t/libc10.so)\n"
      "  #1 f(int) in /w/cp-pool-worker\n"
      "/w/cp-pool-worker(main+0x8d9)[0x1]\n"
      "\n");
  EXPECT_EQ(ring.last_line(), "cannot start: Too many open files");
  ring.feed("#1 priority\n");
  EXPECT_EQ(ring.last_line(), "#1 priority");
}

}  // namespace
}  // namespace cp_pool
