#include "cp_core/layout.h"

#include <algorithm>

#include "cp_core/mutation.h"

namespace cp_pool {

#ifdef CP_POOL_MUTANTS
static at::Tensor as_if_contiguous(const at::Tensor& tensor) {
  std::vector<std::int64_t> strides(static_cast<std::size_t>(tensor.dim()), 1);
  for (auto d = strides.size() - 1; d > 0; --d) strides[d - 1] = strides[d] * tensor.size(static_cast<std::int64_t>(d));
  return tensor.as_strided(tensor.sizes(), strides);
}
#endif

at::Tensor to_packed(const at::Tensor& tensor, Layout layout) {
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): the mutant is another tensor
  const at::Tensor read = CP_MUTATE(strides_ignored, tensor, as_if_contiguous(tensor));
  switch (layout) {
    case Layout::bshd:
      return read.contiguous().flatten(0, 1);
    case Layout::sbhd:
      return read.transpose(0, 1).contiguous().flatten(0, 1);
    case Layout::thd:
      break;
  }
  return read.contiguous();
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
