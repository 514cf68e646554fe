#include "driver/pool/stderr_ring.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kFence1 = "\n[CP_POOL_FENCE] 1\n";
constexpr const char* kFence2 = "\n[CP_POOL_FENCE] 2\n";

TEST(StderrRing, KeepsTheLinesOfACaseUpToItsFence) {
  StderrRing ring(3);
  ring.begin_case(1);
  ring.feed("one\ntw");
  ring.feed("o\n");
  EXPECT_FALSE(ring.complete());
  ring.feed(kFence1);
  EXPECT_TRUE(ring.complete());
  const StderrTail tail = ring.tail();
  EXPECT_EQ(tail.rank, 3);
  EXPECT_EQ(tail.text, "one\ntwo\n");
  EXPECT_TRUE(tail.fenced);
}

TEST(StderrRing, GivesNoCaseWhatWasWrittenBetweenCases) {
  StderrRing ring(0);
  ring.feed("loading\n");
  EXPECT_EQ(ring.tail().text, "loading\n");  // lines from before the first case
  ring.begin_case(1);
  ring.feed(std::string("first\n") + kFence1 + "idle\n");
  EXPECT_EQ(ring.tail().text, "first\n");
  ring.begin_case(2);
  ring.feed(std::string("second\n") + kFence2);
  EXPECT_EQ(ring.tail().text, "second\n");
  EXPECT_TRUE(ring.tail().fenced);
}

TEST(StderrRing, TakesWhatARankThatIsThroughWithTheCaseSaysWhenItIsAsked) {
  StderrRing ring(0);
  ring.begin_case(1);
  ring.feed(std::string("first\n") + kFence1 + "idle\n");
  ring.reopen();
  ring.feed("where I stand\n");
  EXPECT_EQ(ring.tail().text, "first\nidle\nwhere I stand\n");
  EXPECT_TRUE(ring.tail().fenced);
  ring.begin_case(2);
  ring.feed(std::string("second\n") + kFence2 + "idle\n");
  EXPECT_EQ(ring.tail().text, "second\n");
}

TEST(StderrRing, DropsLinesOfTheCaseBeforeWhenItsFenceComesLate) {
  StderrRing ring(0);
  ring.begin_case(1);
  ring.feed("first\n");
  ring.begin_case(2);
  ring.feed(std::string("late first\n") + kFence1 + "second\n" + kFence2);
  EXPECT_EQ(ring.tail().text, "second\n");
  EXPECT_TRUE(ring.tail().fenced);
}

TEST(StderrRing, SaysThatLinesMayBeForeignWhenTheFenceBeforeNeverCame) {
  StderrRing ring(0);
  ring.begin_case(1);
  ring.feed("first\n");
  ring.begin_case(2);
  ring.feed(std::string("second\n") + kFence2);
  EXPECT_EQ(ring.tail().text, "first\nsecond\n");
  EXPECT_FALSE(ring.tail().fenced);
}

TEST(StderrRing, IsCompleteWithoutAFenceWhenTheStreamHasEnded) {
  StderrRing ring(0);
  ring.begin_case(1);
  ring.feed("dying");
  EXPECT_FALSE(ring.complete());
  ring.close();
  EXPECT_TRUE(ring.complete());
  EXPECT_EQ(ring.tail().text, "dying\n");
  EXPECT_TRUE(ring.tail().fenced);
}

TEST(StderrRing, IsNotFencedByTheFenceOfAnotherCase) {
  StderrRing ring(0);
  ring.begin_case(1);
  ring.feed(std::string("first\n") + kFence2);
  EXPECT_FALSE(ring.complete());
  EXPECT_FALSE(ring.tail().fenced);
}

TEST(StderrRing, KeepsTheLastLines) {
  StderrRing ring(0);
  ring.begin_case(1);
  for (int i = 0; i < 1000; ++i) ring.feed(std::to_string(i) + "\n");
  EXPECT_THAT(ring.tail().text, StartsWith("800\n"));
  EXPECT_THAT(ring.tail().text, EndsWith("999\n"));
}

TEST(StderrRing, AttachesTheLastBytesNotStartingInsideACharacter) {
  StderrRing ring(0);
  ring.begin_case(1);
  std::string line;
  while (line.size() < 10000) line += "\u20ac";  // three bytes each
  ring.feed(line + "\n");
  const std::string text = ring.tail().text;
  EXPECT_LE(text.size(), kTailBytes);
  EXPECT_GT(text.size(), kTailBytes - 3);
  EXPECT_THAT(text, Not(HasSubstr("\uFFFD")));
}

TEST(StderrRing, CleansForeignText) {
  StderrRing ring(0);
  ring.begin_case(1);
  ring.feed("\x1b[31mred\xff\n");
  EXPECT_EQ(ring.tail().text, "\\x1b[31mred\uFFFD\n");
}

TEST(StderrRing, KnowsTheLastLineOfAllEvenBetweenCases) {
  StderrRing ring(0);
  EXPECT_EQ(ring.last_line(), "");
  ring.begin_case(1);
  ring.feed(std::string("first\n") + kFence1 + "terminate called");
  EXPECT_EQ(ring.last_line(), "terminate called");
}

TEST(StderrRing, TheLastLineIsNoneOfAStack) {
  StderrRing ring{0};
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
