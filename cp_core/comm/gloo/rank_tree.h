// The tree along which the ranks of a group tell each other something: a rank hears its children, then tells its
// parent.
#pragma once

#include <vector>

namespace cp_pool {

// The ranks first, first + 1, .. of which `first` is the root.
struct RankRange {
  int first = 0;
  int count = 1;
};

struct TreePlace {
  int parent = -1;                  // of rank 0: none
  int subtree = 1;                  // ranks from this one on that it speaks for, itself included
  int height = 0;                   // levels below it
  std::vector<RankRange> children;  // in order of rank; with this rank itself they are its subtree
};

// Each rank has at most so many ranks at one level below it: those of one host, where hosts have eight ranks.
inline constexpr int kTreeWidth = 8;

// Rank r's parent is r without its last digit that is not 0, in base kTreeWidth. So the tree has as many levels as
// `size` has digits, and neighbours share a parent.
TreePlace tree_place(int rank, int size);

}  // namespace cp_pool
