// The rows of a case as a probe counts them: those of all ranks, padding included, sequence by sequence. Keys of other
// sequences and padding keys are columns like any other, so that they show where they are seen.
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
  // In the sequence. Padding rows that have no position of their own stand behind the others.
  std::int64_t position = 0;
  bool padding = false;
  int rank = 0;  // that holds it
  std::int64_t chunk =
      -1;  // the dual chunk, of the sequence or of the pack as the convention cuts; -1: it cuts otherwise

  bool operator==(const GridRow&) const = default;
};

// The rows of one side, queries or keys.
struct GridAxis {
  std::vector<GridRow> rows;
  std::vector<std::int64_t> lengths;  // how many rows each sequence has
  bool places_padding = true;         // the positions of padding rows are those of the padded sequence
  verify::RowsByRank by_rank;         // what each rank holds, in packed order; `canonical` is the index in `rows`

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(rows.size()); }
  [[nodiscard]] const GridRow& row(std::int64_t index) const { return rows[static_cast<std::size_t>(index)]; }
  // How many sequences have rows.
  [[nodiscard]] std::int64_t sequences() const;
};

struct ProbeGrid {
  GridAxis q;
  GridAxis kv;
};

// There must be no sharding_fault.
ProbeGrid make_grid(const Case& c, const SequenceLengths& lengths, const verify::Sharding& sharding, int ranks);

}  // namespace cp_pool::diagnosis
