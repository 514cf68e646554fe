// Numbers the rows of a case for a probe: the rows of all ranks, padding included, sequence by sequence. Keys of other
// sequences and padding keys are ordinary columns, so that a query that wrongly sees them shows.
#pragma once

#include <cstdint>
#include <vector>

#include "cases/case.h"
#include "cases/lengths.h"
#include "cp_core/verify/ownership.h"
#include "cp_core/verify/sharding.h"

namespace cp_pool::diagnosis {

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

}  // namespace cp_pool::diagnosis
