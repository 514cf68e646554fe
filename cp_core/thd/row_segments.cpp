#include "cp_core/thd/row_segments.h"

#include <algorithm>
#include <utility>

namespace cp_pool {
namespace {

// The ranges of a part, in order of target rows.
class PartRows {
 public:
  explicit PartRows(std::span<const RowCopy> rows) : rows_(rows.begin(), rows.end()) {
    std::erase_if(rows_, [](const RowCopy& range) { return range.count == 0; });
    std::ranges::sort(rows_, {}, &RowCopy::target);
  }

  void append_cuts(std::vector<std::int64_t>& cuts) const {
    for (const RowCopy& range : rows_) {
      cuts.push_back(range.target);
      cuts.push_back(range.target + range.count);
    }
  }

  // Returns the range that has this target row, or null. Rows must be asked for in ascending order.
  const RowCopy* find(std::int64_t row) {
    while (next_ < rows_.size() && rows_[next_].target + rows_[next_].count <= row) ++next_;
    return next_ < rows_.size() && rows_[next_].target <= row ? &rows_[next_] : nullptr;
  }

 private:
  std::vector<RowCopy> rows_;
  std::size_t next_ = 0;
};

}  // namespace

std::vector<RowSegment> row_segments(const std::vector<std::span<const RowCopy>>& lists,
                                     std::optional<std::int64_t> count) {
  std::vector<PartRows> parts(lists.begin(), lists.end());
  std::vector<std::int64_t> cuts;
  if (count) cuts = {0, *count};
  for (const PartRows& part : parts) part.append_cuts(cuts);
  std::ranges::sort(cuts);
  const auto repeated = std::ranges::unique(cuts);
  cuts.erase(repeated.begin(), repeated.end());
  std::vector<RowSegment> segments;
  for (std::size_t i = 1; i < cuts.size(); ++i) {
    RowSegment segment{.target = cuts[i - 1], .count = cuts[i] - cuts[i - 1], .terms = {}};
    for (std::size_t part = 0; part < parts.size(); ++part) {
      if (const RowCopy* range = parts[part].find(segment.target)) {
        segment.terms.push_back({.part = part, .source = range->source + segment.target - range->target});
      }
    }
    if (count || !segment.terms.empty()) segments.push_back(std::move(segment));
  }
  return segments;
}

}  // namespace cp_pool
