#include "cp_core/thd/add_rows.h"

#include "cp_core/cuda/cuda_part.h"
#include "cp_core/thd/row_types.h"

namespace cp_pool {

void add_rows(at::Tensor& sum, const at::Tensor& part, std::span<const RowCopy> rows) {
  if (sum.numel() == 0 || part.numel() == 0) return;
  if (sum.is_cuda()) {
    cuda_part().add_rows(sum, part, rows);
    return;
  }
  TORCH_CHECK(sum.is_cpu(), "add_rows has no kernel for ", sum.device());
  const std::int64_t columns = sum.numel() / sum.size(0);
  with_row_types(sum, part, [&](auto* to, const auto* from) {
    for (const RowCopy& range : rows) {
      auto* target = to + range.target * columns;
      const auto* source = from + range.source * columns;
      for (std::int64_t i = 0; i < range.count * columns; ++i) {
        const float total = static_cast<float>(target[i]) + static_cast<float>(source[i]);
        target[i] = static_cast<std::remove_cvref_t<decltype(*to)>>(total);
      }
    }
  });
}

}  // namespace cp_pool
