// Who owns which row: for each rank its rows of the sequences, in the order in which its shards hold them. An
// implementation declares it, by a convention (conventions.h) or row by row; before a case runs it is proved that every
// valid row has an owner.
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
  std::int64_t position;   // in the sequence; -1 = padding that no sequence has
  std::int64_t canonical;  // row of the canonical tensors (canonical.h); -1 = padding

  bool operator==(const LocalRow&) const = default;
};

using RowsByRank = std::vector<std::vector<LocalRow>>;

// Of queries and of keys, which may be cut in different ways.
struct Ownership {
  RowsByRank q;
  RowsByRank kv;
};

// The rows of one rank that are given as canonical rows; -1 is padding, which counts to the sequence of the row before
// it. valid: the lengths of the sequences. Throws std::out_of_range, naming the row, for one that there is not.
std::vector<LocalRow> local_rows(const std::vector<std::int64_t>& canonical, const std::vector<std::int64_t>& valid);

// Returns why these rows cannot be the shards of a case, as a sentence that names side, row and ranks; empty if they
// can: every valid row has one owner, but the first `replicated` of each sequence, which every rank holds once; and in
// bshd and sbhd each rank holds equally many rows of each sequence, sequence by sequence. side: "q" or "kv".
std::string ownership_fault(const RowsByRank& by_rank, const std::vector<std::int64_t>& valid, Layout layout,
                            std::string_view side, std::int64_t replicated = 0);

}  // namespace cp_pool::verify
