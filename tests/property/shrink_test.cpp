#include "tests/property/shrink.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>

#include <gtest/gtest.h>

#include "cases/case_json.h"
#include "tests/property/random_case.h"

namespace cp_pool::property {
namespace {

// The first random case that the predicate holds for.
template <typename Predicate>
Case find_case(const Predicate& fails) {
  std::mt19937_64 generator(11);
  for (;;) {
    Case c = random_case(generator);
    if (fails(c)) return c;
  }
}

TEST(Shrink, EndsAtTheSmallestCaseThatFails) {
  const auto fails = [](const Case& c) { return c.window[0] >= 3 && c.heads > c.kv_heads && c.cp_size >= 2; };
  const Case smallest = shrink(find_case(fails), fails);

  EXPECT_TRUE(fails(smallest));
  EXPECT_EQ(find_problem(smallest), std::nullopt);
  Case expected;
  expected.suite = "property";
  expected.dtype = DType::fp32;
  expected.cp_size = 2;
  expected.batch = 1;
  expected.seqlen_q = expected.seqlen_kv = 4;
  expected.heads = 2 * smallest.kv_heads;
  expected.kv_heads = smallest.kv_heads;
  expected.head_dim_qk = expected.head_dim_v = 1;
  expected.window[0] = 3;
  expected.training = false;
  EXPECT_EQ(to_json(smallest), to_json(expected));
}

TEST(Shrink, KeepsTheOneSequenceThatMatters) {
  const auto fails = [](const Case& c) {
    return c.seqlens && std::ranges::any_of(*c.seqlens, [](std::int64_t length) { return length >= 7; });
  };
  const Case smallest = shrink(find_case([&](const Case& c) { return c.batch > 2 && fails(c); }), fails);

  EXPECT_EQ(smallest.batch, 1);
  EXPECT_LT((*smallest.seqlens)[0], 7 + 2 * smallest.cp_size);
  EXPECT_EQ(smallest.seqlens_kv, std::nullopt);
}

TEST(Shrink, KeepsTheReplicatedTokensThatMatter) {
  const auto fails = [](const Case& c) { return c.replicated >= 3 && c.cp_size >= 2; };
  const Case smallest = shrink(find_case([&](const Case& c) { return c.replicated > 3 && fails(c); }), fails);
  EXPECT_EQ(smallest.replicated, 3);
  EXPECT_EQ(smallest.batch, 1);
}

TEST(Shrink, LeavesACaseWithoutSimplerOnesAlone) {
  const auto fails = [](const Case& c) { return c.bias.has_value(); };
  const Case smallest = shrink(find_case(fails), fails);
  EXPECT_EQ(shrink(smallest, fails), smallest);
}

}  // namespace
}  // namespace cp_pool::property
