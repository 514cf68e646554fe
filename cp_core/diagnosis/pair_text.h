// Describes rectangles of queries and keys in words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cases/diagnosis.h"
#include "cp_core/diagnosis/pair_blocks.h"
#include "cp_core/diagnosis/probe_grid.h"

namespace cp_pool::diagnosis {

// A range of rows; both ends are included.
struct RowSpan {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

// "queries 64..127 of sequence 1 (rank 1)", "query 3 (rank 0)", "2 padding queries (rank 1)". All rows must belong to
// one sequence, and either all or none be padding. The sequence is named if the axis has several.
std::string queries_text(const GridAxis& axis, RowSpan rows);
// "keys 32..47 (chunk 1, rank 0)", "16 padding keys 48..63 (chunk 3, rank 0)". The sequence is named if it is not that
// of the queries.
std::string keys_text(const GridAxis& axis, RowSpan rows, std::int64_t sequence_of_queries);

// "0", "0..3", "0, 2, 3". The numbers must ascend.
std::string numbers_text(const std::vector<std::int64_t>& numbers);
// "once", "twice", "3 times".
std::string times_text(std::int64_t times);

// Sets borders such that no rectangle crosses from one sequence into the next, or from valid rows into padding.
void mark_borders(PairLabels& labels, const ProbeGrid& grid);

// Converts the block to a rectangle without text.
PairRectangle rectangle_of(const ProbeGrid& grid, const PairBlock& block);

}  // namespace cp_pool::diagnosis
