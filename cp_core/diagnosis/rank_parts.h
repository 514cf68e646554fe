// How ranks divide their work: rings and their steps, the two chunks of a rank, parts that are merged.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/model.h"
#include "cp_core/diagnosis/world.h"

namespace cp_pool::diagnosis {

// Ranks that pass K and V on to the next one.
struct Ring {
  int size = 1;
  std::vector<int> place;  // of each rank; ranks of one place hold their heads of the same rows
};

// The ring of all ranks; and of pairs, where the case has them.
std::vector<Ring> rings_of(const World& world);

// int64, pairs: at which step of a ring, in which each step brings K and V of the rank before, a pair meets. 0 = own.
at::Tensor step_of_pairs(const World& world, const Ring& ring);
// The row of each rank's place: int64 [ranks, rows]; source(rank, owner) has the same place as a row of `owner`, in the
// rows of the rank that it names. Undefined unless all ranks have equally many rows of every sequence.
at::Tensor rows_at_same_place(const Side& side, int ranks, const std::function<int(int rank, int owner)>& source);
// int64 [rows]: where a row stands among all rows, sequence by sequence, by position.
at::Tensor order_in_sequences(const Side& side);

// int64 [rows]: 0 in the first stretch of following positions that a rank has of a sequence, 1 in the others. Chunks of
// which one goes on where the other ends are one stretch.
at::Tensor stretch_of_rows(const Side& side);

// One way to cut pairs into parts that are merged in this order.
struct Parts {
  std::string what;  // "steps of the ring"
  at::Tensor of_pair;
  std::int64_t count = 0;
  // The same cut further, which may be so for some queries and not for others: at the two chunks of a rank's keys, of
  // all ranks or of others alone, whether or not one goes on where the other ends. Twice as many.
  std::vector<at::Tensor> finer = {};
};
std::vector<Parts> parts_of(const World& world);
// The steps of rings, of which the last is that of the rank's own keys.
std::vector<Parts> parts_with_own_last(const World& world);
// int64, pairs: in which stretch of the keys of other ranks a key is, which are cut where the query's rank has its own.
at::Tensor stretch_of_others(const World& world);

}  // namespace cp_pool::diagnosis
