// Cuts the target rows of several lists of rows into segments whose rows are sums of the same parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cp_core/partition.h"

namespace cp_pool {

struct RowTerm {
  std::size_t part = 0;
  std::int64_t source = 0;  // the part's row for the first row of the segment
};

// Rows [target, target + count), which all have the same terms. Terms are in order of parts.
struct RowSegment {
  std::int64_t target = 0;
  std::int64_t count = 0;
  std::vector<RowTerm> terms;
};

// Returns segments of the rows that are a target of some part, in order, each row in one segment. The targets of a part
// must be disjoint. count: if set, the segments are of all rows [0, count), including rows that are no target; all
// targets must be among these rows.
std::vector<RowSegment> row_segments(const std::vector<std::span<const RowCopy>>& lists,
                                     std::optional<std::int64_t> count = std::nullopt);

}  // namespace cp_pool
