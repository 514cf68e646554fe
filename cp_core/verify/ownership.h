// Which rank owns which rows: for each rank, its rows of the sequences in the order in which its shards hold them. An
// implementation declares this by a convention (conventions.h) or row by row. Before a case runs, it is checked that
// every valid row has exactly one owner.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"

namespace cp_pool::verify {

// A row of a rank's shard.
struct LocalRow {
  std::int64_t sequence;
  std::int64_t position;   // in the sequence; -1 = padding that has no position
  std::int64_t canonical;  // row of the canonical tensors (canonical.h); -1 = padding

  bool operator==(const LocalRow&) const = default;
};

using RowsByRank = std::vector<std::vector<LocalRow>>;

// The rows of queries and of keys, which may be sharded differently.
struct Ownership {
  RowsByRank q;
  RowsByRank kv;
};

// Converts the rows of one rank from canonical rows. -1 is padding, which belongs to the sequence of the row before it.
// valid: the valid lengths of the sequences. Throws std::out_of_range, naming the row, if a row does not exist.
std::vector<LocalRow> local_rows(const std::vector<std::int64_t>& canonical, const std::vector<std::int64_t>& valid);

// Returns why these rows cannot be the shards of a case, as a sentence that names side, row and ranks; empty if they
// can. Every valid row must have one owner, except the first `replicated` rows of each sequence, which every rank must
// hold once. In bshd and sbhd, each rank must also hold equally many rows of each sequence, sequence by sequence. side:
// "q" or "kv".
std::string ownership_fault(const RowsByRank& by_rank, const std::vector<std::int64_t>& valid, Layout layout,
                            std::string_view side, std::int64_t replicated = 0);

}  // namespace cp_pool::verify
