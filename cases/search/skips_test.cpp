#include "cases/search/skips.h"

#include <functional>
#include <map>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/search/random_case.h"
#include "cases/search/traits.h"

namespace cp_pool::search {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::Not;

using Refuses = std::function<bool(const Case&)>;

// Outcomes of the cases that a search sends to a worker that refuses some cases.
struct Sent {
  int judged = 0;
  int skipped = 0;
};

Sent send(const Refuses& refuses, int cases, Skips& skips, std::mt19937_64& generator) {
  Sent sent;
  for (int draws = 0; sent.judged + sent.skipped < cases && draws < 3'000'000; ++draws) {
    const Case c = random_case(generator);
    if (skips.leaves_out(c)) continue;
    if (refuses(c)) {
      ++sent.skipped;
      skips.skipped(c, "it refuses that");
    } else {
      ++sent.judged;
      skips.judged(c);
    }
  }
  return sent;
}

std::vector<std::string> names(const std::vector<Skips::Unjudged>& unjudged) {
  std::vector<std::string> out;
  for (const Skips::Unjudged& one : unjudged) out.push_back(one.what);
  return out;
}

TEST(Skips, LeaveOutWhatIsAlwaysSkipped) {
  Skips skips;
  std::mt19937_64 generator(1);
  const Refuses no_bias = [](const Case& c) { return c.bias.has_value(); };
  const Sent sent = send(no_bias, 300, skips, generator);
  EXPECT_LT(sent.skipped, 60);
  EXPECT_EQ(send(no_bias, 300, skips, generator).skipped, 0) << "it has learned that";
  EXPECT_THAT(names(skips.unjudged()),
              ::testing::UnorderedElementsAre("bias=1hss", "bias=bhss", "bias=b1ss", "bias=11ss", "bias=111s"));
  EXPECT_THAT(skips.unjudged(), Each(Field(&Skips::Unjudged::reason, "it refuses that")));
}

// Refuses what a small library cannot run: it has one communication type, one layout and plain attention.
bool refused_by_a_small_library(const Case& c) {
  const bool plain = c.softmax == SoftmaxType::vanilla && !c.bias && !c.max_logit && c.chunk == 0 &&
                     c.window == std::array{kInfiniteWindow, kInfiniteWindow} && !c.deterministic && !c.strided;
  return !plain || c.comm != CommType::p2p || c.layout != Layout::bshd || c.seqlen_q != c.seqlen_kv ||
         c.head_dim_qk != c.head_dim_v || c.backend != Backend::math || c.cp_size % 2 == 1;
}

TEST(Skips, FindTheFewCasesThatASmallLibraryRuns) {
  int judged = 0;
  Skips skips;
  for (const unsigned seed : {2U, 3U, 4U, 5U, 6U}) {
    skips = {};
    std::mt19937_64 generator(seed);
    send(refused_by_a_small_library, 400, skips, generator);
    judged += send(refused_by_a_small_library, 200, skips, generator).judged;
  }
  EXPECT_GE(judged, 5 * 180);
  const std::vector<std::string> unjudged = names(skips.unjudged());
  for (const char* refused : {"comm=a2a", "comm=all_gather", "layout=thd", "layout=sbhd", "max_logit=true",
                              "chunked attention", "a window to the left", "seqlen_q < seqlen_kv", "cp_size=3"}) {
    EXPECT_THAT(unjudged, Contains(refused));
  }
  for (const char* taken : {"comm=p2p", "layout=bshd", "cp_size=2", "cp_size=4", "causal=true", "dtype=fp16"}) {
    EXPECT_THAT(unjudged, Not(Contains(taken)));
  }
}

TEST(Skips, AreTriedWithPlainCasesFirstWhichHaveWhatAllHave) {
  Case plain;
  plain.softcap = 2;
  Case windowed = plain;
  windowed.window = {4, 0};
  Skips skips(plain);
  skips.skipped(windowed, "it refuses that");
  EXPECT_TRUE(skips.leaves_out(windowed));
  EXPECT_FALSE(skips.leaves_out(plain));
}

// Random cases may blame one of the two traits first: coverage_test shows that a search finds out.
TEST(Skips, LeaveOutTwoTraitsThatAreOnlyRefusedTogether) {
  Skips skips;
  Case plain;
  plain.seqlen_q = plain.seqlen_kv = 64;
  Case packed = plain;
  packed.layout = Layout::thd;
  packed.seqlens = {64, 64};
  Case half = plain;
  half.dtype = DType::fp16;
  skips.judged(packed);
  skips.judged(half);
  Case both = packed;
  both.dtype = half.dtype;
  for (std::size_t blamed = 0; blamed < Skips::kTimes; ++blamed) {
    EXPECT_FALSE(skips.leaves_out(both)) << blamed;
    skips.skipped(both, "it refuses that");
  }
  EXPECT_TRUE(skips.leaves_out(both));
  EXPECT_FALSE(skips.leaves_out(packed));
  EXPECT_FALSE(skips.leaves_out(half));
  EXPECT_THAT(names(skips.unjudged()), ::testing::ElementsAre("dtype=fp16 with layout=thd"));
}

TEST(Skips, TakeBackABlameWhenACaseWithItIsJudged) {
  Skips skips;
  std::mt19937_64 generator(4);
  const Refuses no_bias = [](const Case& c) { return c.bias.has_value(); };
  send(no_bias, 300, skips, generator);
  Case c = random_case(generator);
  c.bias = BiasShape::shape_11ss;
  EXPECT_TRUE(skips.leaves_out(c));
  skips.judged(c);
  EXPECT_FALSE(skips.leaves_out(c));
  EXPECT_THAT(names(skips.unjudged()), Not(Contains("bias=11ss")));
}

TEST(Skips, TellTheReasonOfTheFirstSkipThatIsBlamed) {
  Skips skips;
  const Case plain;
  skips.judged(plain);
  Case both = plain;
  both.bias = BiasShape::shape_1hss;
  both.max_logit = true;
  skips.skipped(both, "neither");
  Case biased = plain;
  biased.bias = BiasShape::shape_1hss;
  skips.skipped(biased, "no bias");
  skips.skipped(biased, "no bias today");
  std::map<std::string, std::string> reasons;
  for (const Skips::Unjudged& one : skips.unjudged()) reasons[one.what] = one.reason;
  EXPECT_EQ(reasons, (std::map<std::string, std::string>{{"bias=1hss", "no bias"}, {"max_logit=true", "neither"}}));
}

TEST(Skips, BlameTheTraitThatTheAdapterNames) {
  Skips skips;
  Case c;
  c.layout = Layout::thd;
  c.seqlens = {64, 64};
  c.bias = BiasShape::shape_1hss;
  c.max_logit = true;
  c.window = {3, 3};
  const std::string layout = "the adapter ring does not declare thd in layouts=['bshd', 'sbhd']";
  const std::string window =
      "the case needs a sliding window, and the adapter ring does not declare the feature 'window'";
  for (std::size_t blamed = 0; blamed < Skips::kTimes; ++blamed) {
    skips.skipped(c, layout);
    skips.skipped(c, window);
  }
  std::map<std::string, std::string> reasons;
  for (const Skips::Unjudged& one : skips.unjudged()) reasons[one.what] = one.reason;
  EXPECT_EQ(reasons, (std::map<std::string, std::string>{
                         {"layout=thd", layout}, {"a window to the left", window}, {"a window to the right", window}}));
  Case plain;
  skips.judged(plain);
  plain.max_logit = true;
  EXPECT_FALSE(skips.leaves_out(plain));
  plain.layout = Layout::thd;
  EXPECT_TRUE(skips.leaves_out(plain));
}

TEST(Skips, OfAWorkerWithoutAnyLeaveNothingOut) {
  Skips skips;
  std::mt19937_64 generator(4);
  send([](const Case&) { return false; }, 50, skips, generator);
  EXPECT_THAT(skips.unjudged(), IsEmpty());
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(skips.leaves_out(random_case(generator)));
}

TEST(Skips, LearnNothingFalseWhereEverythingIsRefused) {
  Skips skips;
  std::mt19937_64 generator(5);
  EXPECT_EQ(send([](const Case&) { return true; }, 500, skips, generator).skipped, 500);
}

}  // namespace
}  // namespace cp_pool::search
