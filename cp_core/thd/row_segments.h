// The target rows of several lists of rows, cut into segments that have the same terms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cp_core/partition.h"

namespace cp_pool {

struct RowTerm {
  std::size_t part = 0;
  std::int64_t source = 0;  // the row that belongs to the segment's first
};

// Rows [target, target + count), all with the same terms: in order of parts.
struct RowSegment {
  std::int64_t target = 0;
  std::int64_t count = 0;
  std::vector<RowTerm> terms;
};

// The target rows of all parts, each row in one segment, in order. The targets of a part are disjoint.
std::vector<RowSegment> named_segments(const std::vector<std::span<const RowCopy>>& parts);

// The same for all rows [0, count), including those without a part. Targets must lie within them.
std::vector<RowSegment> all_segments(const std::vector<std::span<const RowCopy>>& parts, std::int64_t count);

}  // namespace cp_pool
