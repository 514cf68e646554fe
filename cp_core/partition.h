// Which rows of a packed tensor hold which positions of its sequences, when sequences are partitioned over ranks
// (cases/dual_chunk.h).
#pragma once

#include <cstdint>
#include <vector>

namespace cp_pool {

// Positions [begin, end) of one padded sequence, which occupy consecutive rows of a packed tensor from row `row` on.
struct Run {
  std::int64_t sequence = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t row = 0;

  [[nodiscard]] std::int64_t size() const { return end - begin; }
  bool operator==(const Run&) const = default;
};

// The functions below return runs in row order, none of them empty. padded: the padded length of each sequence; where
// there are ranks, a multiple of 2 * ranks.

// The runs of rank `rank` of `ranks`, sequence by sequence: in each, chunk `rank` and then chunk 2 * ranks - 1 - rank.
// Adjacent chunks make one run.
std::vector<Run> local_runs(const std::vector<std::int64_t>& padded, int ranks, int rank);

// The part of local_runs that is in one chunk of each sequence: half 0 is chunk `rank`, half 1 is chunk
// 2 * ranks - 1 - rank.
std::vector<Run> local_half_runs(const std::vector<std::int64_t>& padded, int ranks, int rank, int half);

// Whole sequences, one after the other.
std::vector<Run> whole_runs(const std::vector<std::int64_t>& padded);

// The local_runs of ranks first .. first + count - 1 of `ranks`, with rows counted in the concatenation of their
// tensors.
std::vector<Run> gathered_runs(const std::vector<std::int64_t>& padded, int ranks, int first, int count);

std::int64_t total_rows(const std::vector<Run>& runs);

// Rows [row, row + count) of a packed tensor.
struct RowRange {
  std::int64_t row = 0;
  std::int64_t count = 0;

  bool operator==(const RowRange&) const = default;
};

// The `count` rows from `source` on in one packed tensor hold the same positions as those from `target` on in another.
struct RowCopy {
  std::int64_t source = 0;
  std::int64_t target = 0;
  std::int64_t count = 0;

  bool operator==(const RowCopy&) const = default;
};

// Returns the copies that fill a tensor described by `target` from one described by `source`, in order of target rows.
// Throws std::invalid_argument if `source` lacks a position.
std::vector<RowCopy> row_copies(const std::vector<Run>& source, const std::vector<Run>& target);

// Returns the copies whose source is among the rows of `rank`, with sources counted from the rank's first row; copies
// that reach beyond its rows are cut. copies: their sources are rows of a concatenation of all ranks' tensors, each of
// rows_of_a_rank rows.
std::vector<RowCopy> copies_of_rank(const std::vector<RowCopy>& copies, int rank, std::int64_t rows_of_a_rank);

}  // namespace cp_pool
