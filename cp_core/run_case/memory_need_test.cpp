#include "cp_core/run_case/memory_need.h"

#include <gtest/gtest.h>

#include "cases/lengths.h"

namespace cp_pool::verify {
namespace {

constexpr double kGiB = 1U << 30U;

double gib(const Case& c, int ranks) {
  return static_cast<double>(estimated_device_bytes(canonical_problem(c, resolve_lengths(c)), ranks)) / kGiB;
}

Case te_case() {
  Case c;
  c.batch = 2;
  c.seqlen_q = c.seqlen_kv = 4096;
  c.heads = c.kv_heads = 12;
  c.head_dim_qk = c.head_dim_v = 128;
  c.cp_size = 2;
  return c;
}

TEST(MemoryNeed, OfACaseOfTransformerEngineIsSomeGiB) {
  EXPECT_GT(gib(te_case(), 2), 1);
  EXPECT_LT(gib(te_case(), 2), 16);
}

TEST(MemoryNeed, GrowsWithTheProblem) {
  Case longer = te_case();
  longer.seqlen_q = longer.seqlen_kv = 1 << 20;
  EXPECT_GT(gib(longer, 2), 50 * gib(te_case(), 2));
  Case biased = te_case();
  biased.bias = BiasShape::shape_bhss;
  EXPECT_GT(gib(biased, 2), gib(te_case(), 2) + 4);
}

// Measured on an H100: 4.4 GiB on each of two ranks, 2.7 GiB on each of four.
TEST(MemoryNeed, OfARankShrinksWithTheNumberOfRanksButNotAsMuch) {
  const Case c = te_case();
  EXPECT_NEAR(gib(c, 2), 4.44, 1);
  EXPECT_NEAR(gib(c, 4), 2.72, 1);
}

TEST(MemoryNeed, OfAnEmptyProblemIsSmall) {
  Case c = te_case();
  c.layout = Layout::thd;
  c.seqlens = {{0, 0}};
  c.seqlens_kv = {{0, 0}};
  EXPECT_LT(gib(c, 2), 1);
}

}  // namespace
}  // namespace cp_pool::verify
