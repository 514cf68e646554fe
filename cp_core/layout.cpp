#include "cp_core/layout.h"

#include <algorithm>

namespace cp_pool {

at::Tensor to_packed(const at::Tensor& tensor, Layout layout) {
  switch (layout) {
    case Layout::bshd:
      return tensor.contiguous().flatten(0, 1);
    case Layout::sbhd:
      return tensor.transpose(0, 1).contiguous().flatten(0, 1);
    case Layout::thd:
      break;
  }
  return tensor.contiguous();
}

at::Tensor from_packed(const at::Tensor& packed, Layout layout, std::int64_t batch) {
  if (layout == Layout::thd) return packed;
  const at::Tensor bshd = packed.unflatten(0, {batch, packed.size(0) / batch});
  return layout == Layout::bshd ? bshd : bshd.transpose(0, 1).contiguous();
}

std::vector<RowRange> valid_rows(const std::vector<Run>& runs, const std::vector<std::int64_t>& valid) {
  std::vector<RowRange> rows;
  for (const Run& run : runs) {
    const std::int64_t end = std::min(run.end, valid[static_cast<std::size_t>(run.sequence)]);
    if (end > run.begin) rows.push_back({.row = run.row, .count = end - run.begin});
  }
  return rows;
}

}  // namespace cp_pool
