// Tests that the matrix decode has what decoding differs in.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cases/lengths.h"
#include "cases/matrix.h"

namespace cp_pool {
namespace {

TEST(Decode, HasAllQueriesOnEveryRankAndFewOfThem) {
  std::set<std::string> met;
  for (const MatrixCase& entry : expand(std::vector{load_matrix(CP_POOL_MATRICES "/decode.json")}, "small")) {
    const Case& c = entry.c;
    EXPECT_TRUE(c.all_queries && !c.training) << entry.id;
    const SequenceLengths lengths = resolve_lengths(c);
    EXPECT_EQ(lengths.valid_q, lengths.padded_q) << entry.id;
    for (std::size_t b = 0; b < lengths.valid_q.size(); ++b) {
      if (lengths.valid_q[b] <= 8) met.insert(std::to_string(lengths.valid_q[b]) + " queries");
      if (lengths.valid_kv[b] < c.cp_size) met.insert("a part without keys");
    }
    const auto [shortest, longest] = std::ranges::minmax(lengths.valid_kv);
    if (longest > 100 * shortest) met.insert("very unequal keys");
    if (c.kv_heads < c.cp_size) met.insert("fewer kv heads than ranks");
    if (c.head_dim_v < c.head_dim_qk) met.insert("MLA");
    if (c.group > 1) met.insert("two groups");
    met.insert(std::to_string(c.cp_size) + " ranks");
  }
  EXPECT_EQ(met, (std::set<std::string>{"0 queries", "1 queries", "2 queries", "5 queries", "8 queries", "2 ranks",
                                        "4 ranks", "8 ranks", "MLA", "a part without keys", "fewer kv heads than ranks",
                                        "two groups", "very unequal keys"}));
}

}  // namespace
}  // namespace cp_pool
