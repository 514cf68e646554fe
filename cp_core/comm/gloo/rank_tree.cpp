#include "cp_core/comm/gloo/rank_tree.h"

#include <algorithm>

namespace cp_pool {

TreePlace tree_place(int rank, int size) {
  TreePlace out;
  for (int below = 1; below < size; below *= kTreeWidth) {  // ranks of a child's subtree at this level
    const int level = below * kTreeWidth;
    if (rank % level != 0) {
      out.parent = rank - rank % level;
      break;
    }
    for (int child = rank + below; child < std::min(rank + level, size); child += below) {
      out.children.push_back({child, std::min(below, size - child)});
    }
    out.subtree = std::min(level, size - rank);
    if (!out.children.empty()) ++out.height;
  }
  return out;
}

}  // namespace cp_pool
