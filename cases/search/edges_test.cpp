#include "cases/search/edges.h"

#include <algorithm>
#include <random>
#include <string_view>

#include <gtest/gtest.h>

#include "cases/search/random_case.h"

namespace cp_pool::search {
namespace {

bool holds(std::string_view name, const Case& c) {
  const auto edge = std::ranges::find(edges(), name, &Edge::name);
  if (edge != edges().end()) return edge->holds(c);
  ADD_FAILURE() << "there is no edge '" << name << "'";
  return false;
}

Case four_pieces() {
  Case c;
  c.seqlen_q = c.seqlen_kv = 20;
  c.kv_heads = 1;
  return c;
}

TEST(Edges, LieWhereASizeMeetsAnother) {
  Case c = four_pieces();
  EXPECT_EQ(piece_of(c), 5);
  EXPECT_FALSE(holds("chunk = piece", c));
  c.chunk = 5;
  EXPECT_TRUE(holds("chunk = piece", c));
  for (const std::int64_t side : {3, 4, 5, 6, 7}) {
    c.chunk = 5;
    c.window = {kInfiniteWindow, side};
    EXPECT_EQ(holds("window = chunk +- 1", c), side >= 4 && side <= 6) << side;
    c.chunk = 0;
    EXPECT_FALSE(holds("window = chunk +- 1", c)) << "without chunks";
    EXPECT_EQ(holds("window = piece +- 1", c), side >= 4 && side <= 6) << side;
  }
  c.kv_heads = 2;
  EXPECT_TRUE(holds("kv heads = ranks", c));
  EXPECT_FALSE(holds("an odd ring", c));
  c.cp_size = 3;
  EXPECT_TRUE(holds("an odd ring", c));
  EXPECT_FALSE(holds("kv heads = ranks", c));
}

TEST(Edges, KnowTheLengthsOfSequences) {
  Case c = four_pieces();
  EXPECT_TRUE(holds("equal lengths", c));
  c.seqlen_kv = 16;
  EXPECT_TRUE(holds("more queries than keys", c));
  EXPECT_FALSE(holds("an empty sequence", c));
  c.layout = Layout::thd;
  c.pad_between_seqs = true;
  c.seqlens = {{20, 1}};
  c.seqlens_kv = {{16, 16}};
  EXPECT_TRUE(holds("a sequence of one token", c));
  c.seqlens_kv = {{16, 0}};
  EXPECT_TRUE(holds("an empty sequence", c));
  c.seqlen_kv = 24;
  EXPECT_TRUE(holds("more keys than queries", c));
}

// The search aims at these edges: none of them may become rare when the drawing of a field changes.
TEST(Edges, AreDrawnOften) {
  constexpr int kCases = 10'000;
  constexpr double kLeastShare = 0.04;
  std::mt19937_64 generator(5);
  std::vector<int> counts(edges().size());
  for (int i = 0; i < kCases; ++i) {
    const Case c = random_case(generator);
    for (std::size_t edge = 0; edge < counts.size(); ++edge) counts[edge] += edges()[edge].holds(c) ? 1 : 0;
  }
  for (std::size_t edge = 0; edge < counts.size(); ++edge) {
    EXPECT_GE(counts[edge], kLeastShare * kCases) << edges()[edge].name;
    RecordProperty(std::string(edges()[edge].name), counts[edge]);
  }
}

}  // namespace
}  // namespace cp_pool::search
