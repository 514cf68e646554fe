#include "cases/search/shrink.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/case_json.h"
#include "cases/search/random_case.h"
#include "cases/search/testing/shrink_case.h"

namespace cp_pool::search {
namespace {

using test::shrink;

// Returns the first random case for which the predicate holds.
template <typename Predicate>
Case find_case(const Predicate& fails, std::uint64_t seed = 11) {
  std::mt19937_64 generator(seed);
  for (;;) {
    Case c = random_case(generator);
    if (fails(c)) return c;
  }
}

// The case that shrinking ends with if every case fails.
Case least_case() {
  Case c;
  c.suite = "search";
  c.dtype = DType::fp32;
  c.cp_size = 1;
  c.batch = 1;
  c.seqlen_q = c.seqlen_kv = 2;
  c.heads = c.kv_heads = c.head_dim_qk = c.head_dim_v = 1;
  c.training = false;
  return c;
}

TEST(Shrink, EndsAtTheSmallestCaseThatFails) {
  const auto fails = [](const Case& c) { return c.window[0] >= 3 && c.heads > c.kv_heads && c.cp_size >= 2; };
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Case smallest = shrink(find_case(fails, seed), fails);
    EXPECT_TRUE(fails(smallest));
    EXPECT_EQ(find_problem(smallest), std::nullopt);
    Case expected = least_case();
    expected.cp_size = 2;
    expected.seqlen_q = expected.seqlen_kv = 4;
    expected.heads = 2;
    expected.window[0] = 3;
    EXPECT_EQ(to_json(smallest), to_json(expected)) << "from seed " << seed;
  }
}

TEST(Shrink, LeavesListedGroupsWithoutGaps) {
  const auto fails = [](const Case& c) { return c.group_ranks && c.group_ranks->front().front() == 1; };
  Case expected = least_case();
  expected.group = 2;
  expected.group_ranks = {{1}, {0}};
  Case c = find_case([&](const Case& of) { return fails(of) && of.group == 3 && of.cp_size == 2; });
  c.group_ranks = {{1, 4}, {0, 3}, {2}};
  EXPECT_EQ(to_json(shrink(c, fails)), to_json(expected));
}

TEST(Shrink, OfAFailureThatNeedsNothingEndsAtTheLeastCase) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    int asked = 0;
    const auto fails = [&](const Case&) {
      ++asked;
      return true;
    };
    std::mt19937_64 generator(seed);
    EXPECT_EQ(to_json(shrink(random_case(generator), fails)), to_json(least_case())) << "from seed " << seed;
    EXPECT_LT(asked, 60);
  }
}

TEST(Shrink, KeepsAnOffsetOfScoresOnlyWhereItMatters) {
  const auto fails = [](const Case& c) { return c.score_offset <= -20'000; };
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Case expected = least_case();
    expected.head_dim_qk = 2;
    expected.score_offset = -65'536;
    EXPECT_EQ(to_json(shrink(find_case(fails, seed), fails)), to_json(expected)) << "from seed " << seed;
  }
}

TEST(Shrink, KeepsTheOneSequenceThatMatters) {
  const auto fails = [](const Case& c) {
    return c.seqlens && std::ranges::any_of(*c.seqlens, [](std::int64_t length) { return length >= 7; });
  };
  const Case smallest = shrink(find_case([&](const Case& c) { return c.batch > 2 && fails(c); }), fails);

  EXPECT_EQ(smallest.batch, 1);
  EXPECT_LT((*smallest.seqlens)[0], 7 + 2 * smallest.cp_size);
  EXPECT_EQ(smallest.seqlen_q, (*smallest.seqlens)[0]);
  EXPECT_EQ(smallest.seqlens_kv, std::nullopt) << to_json(smallest).dump();
}

TEST(Shrink, SpellsDrawnLengthsOutAndMakesThemShorter) {
  const auto fails = [](const Case& c) {
    return c.layout == Layout::thd && c.batch > 1 && resolve_lengths(c).valid_q.at(1) > 5;
  };
  const auto drawn = [&](const Case& c) { return fails(c) && !c.seqlens; };
  const Case smallest = shrink(find_case(drawn), fails);
  EXPECT_EQ(smallest.batch, 2);
  ASSERT_TRUE(smallest.seqlens) << to_json(smallest).dump();
  EXPECT_THAT(*smallest.seqlens, ::testing::ElementsAre(0, 6));
  EXPECT_EQ(smallest.cp_size, 1);
}

// A fault that needs at least three ranks and as many kv heads as ranks.
TEST(Shrink, TakesRanksAndTheirHeadsAwayTogether) {
  const auto fails = [](const Case& c) {
    return c.comm == CommType::a2a && c.cp_size >= 3 && c.kv_heads == c.cp_size && c.heads % c.cp_size == 0;
  };
  const Case smallest = shrink(find_case([&](const Case& c) { return fails(c) && c.cp_size >= 6; }), fails);
  EXPECT_EQ(smallest.cp_size, 3);
  EXPECT_EQ(smallest.heads, 3);
  EXPECT_EQ(smallest.seqlen_q, 6);
}

TEST(Shrink, LeavesACaseWithoutSimplerOnesAlone) {
  const auto fails = [](const Case& c) { return c.bias.has_value(); };
  const Case smallest = shrink(find_case(fails), fails);
  EXPECT_EQ(shrink(smallest, fails), smallest);
}

TEST(Shrinker, TriesNoCaseTwiceAndNoneThatIsNotAllowed) {
  const auto allowed = [](const Case& c) { return c.layout == Layout::thd && c.heads == 6; };
  std::set<std::string> seen;
  std::mt19937_64 choice(5);
  Shrinker shrinker(find_case(allowed), allowed);
  while (const auto c = shrinker.next()) {
    EXPECT_TRUE(allowed(*c));
    EXPECT_EQ(find_problem(*c), std::nullopt);
    EXPECT_TRUE(seen.insert(to_json(*c).dump()).second);
    const bool fails = choice() % 3 == 0;
    shrinker.tell(fails);
    EXPECT_EQ(shrinker.smallest() == *c, fails);
  }
  EXPECT_GT(seen.size(), 10U);
}

}  // namespace
}  // namespace cp_pool::search
