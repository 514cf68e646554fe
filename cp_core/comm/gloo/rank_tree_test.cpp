#include "cp_core/comm/gloo/rank_tree.h"

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

TEST(RankTree, HasEveryRankBelowOneParentWithItsWholeSubtree) {
  for (const int size : {1, 2, 3, 7, 8, 9, 16, 63, 64, 65, 512, 513, 600}) {
    EXPECT_EQ(tree_place(0, size).subtree, size);
    EXPECT_EQ(tree_place(0, size).parent, -1);
    int edges = 0;
    for (int rank = 0; rank < size; ++rank) {
      const TreePlace place = tree_place(rank, size);
      int next = rank + 1;
      for (const RankRange& child : place.children) {
        EXPECT_EQ(child.first, next) << rank << " of " << size;
        EXPECT_EQ(tree_place(child.first, size).parent, rank) << child.first << " of " << size;
        EXPECT_EQ(tree_place(child.first, size).subtree, child.count) << child.first << " of " << size;
        next = child.first + child.count;
        ++edges;
      }
      EXPECT_EQ(next, rank + place.subtree) << rank << " of " << size;
    }
    EXPECT_EQ(edges, size - 1);
  }
}

TEST(RankTree, IsAsDeepAsTheSizeHasDigits) {
  const auto depth = [](int rank, int size) {
    int steps = 0;
    for (int at = rank; at != 0; at = tree_place(at, size).parent) ++steps;
    return steps;
  };
  EXPECT_EQ(depth(7, 8), 1);
  EXPECT_EQ(depth(63, 64), 2);
  EXPECT_EQ(depth(511, 512), 3);
  EXPECT_EQ(tree_place(0, 512).height, 3);
  EXPECT_EQ(tree_place(8, 512).height, 1);
  EXPECT_EQ(tree_place(8, 9).height, 0);
  EXPECT_EQ(tree_place(0, 64).children.size(), 14U);
  EXPECT_EQ(tree_place(8, 64).children.size(), 7U);
}

}  // namespace
}  // namespace cp_pool
