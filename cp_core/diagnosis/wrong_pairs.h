// Numbers the rows of a case for a probe, and shows where queries saw other keys than they should: in counts,
// rectangles, sentences, and a picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cases/case.h"
#include "cases/diagnosis.h"
#include "cases/lengths.h"
#include "cp_core/verify/ownership.h"
#include "cp_core/verify/sharding.h"

namespace cp_pool::diagnosis {

// A row of a probe, which has the rows of all ranks, padding included, sequence by sequence. Keys of other sequences
// and padding keys are ordinary columns, so that a query that wrongly sees them shows.
struct GridRow {
  std::int64_t sequence = 0;
  std::int64_t position = 0;  // in the sequence; padding rows without a position of their own come after all others
  bool padding = false;
  int rank = 0;  // the first rank that holds the row
  bool on_every_rank = false;
  std::int64_t chunk = -1;  // the number of the dual chunk, in the sequence or in the pack; -1: there are none

  bool operator==(const GridRow&) const = default;
};

// The rows of one side, queries or keys.
struct GridAxis {
  std::vector<GridRow> rows;
  std::vector<std::int64_t> lengths;  // how many rows each sequence has
  bool places_padding = true;         // padding rows have their positions of the padded sequence
  verify::RowsByRank by_rank;         // the rows of each rank in packed order; `canonical` is the index in `rows`

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(rows.size()); }
  [[nodiscard]] const GridRow& row(std::int64_t index) const { return rows[static_cast<std::size_t>(index)]; }
};

struct ProbeGrid {
  GridAxis q;
  GridAxis kv;
};

// The sharding must have no sharding_fault.
ProbeGrid make_grid(const Case& c, const SequenceLengths& lengths, const verify::Sharding& sharding, int ranks);

// The keys that queries saw, and those that they should have seen.
struct SightPairs {
  const ProbeGrid& grid;
  const at::Tensor& times;     // fp64 [q, kv], as SeenKeys::times
  const at::Tensor& expected;  // fp64 [q, kv]
  const at::Tensor& weighs;    // bool [q]: the row of `times` holds weights
  std::string prefix = {};     // put before each sentence: "head 2 of 4: ", or empty
};

WrongPairs find_wrong_pairs(const SightPairs& pairs);

// One character per cell (cases/diagnosis.h), at most kMostCells in each direction.
inline constexpr std::int64_t kMostCells = 64;
MaskPicture draw_mask(const SightPairs& pairs);

// "rank 3", "ranks 0, 2, 5", "ranks 4..7".
std::string named_numbers(std::string_view noun, const std::set<std::int64_t>& numbers);

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

// A label for each pair, row by row; 0 means no label.
struct PairLabels {
  std::int64_t q = 0;
  std::int64_t kv = 0;
  std::vector<std::int64_t> labels = std::vector<std::int64_t>(static_cast<std::size_t>(q * kv), 0);

  std::int64_t& at(std::int64_t i, std::int64_t j) { return labels[static_cast<std::size_t>(i * kv + j)]; }
};

// A rectangle of pairs.
struct PairBlock {
  RowSpan q;
  RowSpan kv;
  std::int64_t label = 0;

  [[nodiscard]] std::int64_t pairs() const { return (q.last - q.first + 1) * (kv.last - kv.first + 1); }
};

// Returns the largest rectangle of one label, then the largest one of the remaining pairs, and so on; at most `most`.
// Among equally large ones, the one that ends first comes first: by its last row, then by its last column.
std::vector<PairBlock> largest_blocks(PairLabels labels, std::size_t most);

}  // namespace cp_pool::diagnosis
