#include "cp_core/thd/sum_rows.h"

#include <cstddef>
#include <utility>

#include "cp_core/cuda/cuda_part.h"
#include "cp_core/thd/row_kernels.h"
#include "cp_core/thd/row_segments.h"
#include "cp_core/thd/row_types.h"

namespace cp_pool {
namespace {

// Sums rows of segments. index: the number of the row in its segment.
template <typename Sum, typename Part>
class RowAdder {
 public:
  RowAdder(Sum* sum, const std::vector<const Part*>& parts, std::int64_t columns)
      : sum_(sum), parts_(parts), totals_(static_cast<std::size_t>(columns)) {}

  void add(const RowSegment& segment, std::int64_t index, bool empty) {
    const auto columns = static_cast<std::int64_t>(totals_.size());
    Sum* target = sum_ + (segment.target + index) * columns;
    for (std::size_t i = 0; i < totals_.size(); ++i) totals_[i] = empty ? 0.0F : static_cast<float>(target[i]);
    for (const RowTerm& term : segment.terms) {
      const Part* source = parts_[term.part] + (term.source + index) * columns;
      for (std::size_t i = 0; i < totals_.size(); ++i) totals_[i] += static_cast<float>(source[i]);
    }
    for (std::size_t i = 0; i < totals_.size(); ++i) target[i] = static_cast<Sum>(totals_[i]);
  }

 private:
  Sum* sum_;
  const std::vector<const Part*>& parts_;
  std::vector<float> totals_;
};

void check_parts(const at::Tensor& sum, std::span<const SomeRows> parts) {
  for (const SomeRows& part : parts) {
    check_row_types(sum, part.tensor);
    TORCH_CHECK(part.tensor.scalar_type() == parts.front().tensor.scalar_type(), "rows of ", part.tensor.scalar_type(),
                " beside rows of ", parts.front().tensor.scalar_type());
  }
}

std::vector<RowSegment> segments_of(const at::Tensor& sum, bool empty, std::span<const SomeRows> parts) {
  std::vector<std::span<const RowCopy>> rows;
  rows.reserve(parts.size());
  for (const SomeRows& part : parts) rows.emplace_back(part.rows);
  return row_segments(rows, empty ? std::optional(sum.size(0)) : std::nullopt);
}

void add_all(at::Tensor& sum, bool empty, std::span<const SomeRows> parts) {
  if (sum.numel() == 0) return;
  check_parts(sum, parts);
  const std::vector<RowSegment> segments = segments_of(sum, empty, parts);
  if (sum.is_cuda()) {
    cuda_part<RowKernels>().sum_rows(sum, empty, parts, segments);
    return;
  }
  TORCH_CHECK(sum.is_cpu(), "no sums of rows on ", sum.device());
  with_row_types(sum, parts.front().tensor, [&](auto* to, const auto* first) {
    using Part = std::remove_cvref_t<decltype(*first)>;
    std::vector<const Part*> from;
    from.reserve(parts.size());
    for (const SomeRows& part : parts) from.push_back(static_cast<const Part*>(part.tensor.const_data_ptr()));
    RowAdder adder(to, from, sum.numel() / sum.size(0));
    for (const RowSegment& segment : segments) {
      for (std::int64_t i = 0; i < segment.count; ++i) adder.add(segment, i, empty);
    }
  });
}

}  // namespace

void add_rows(at::Tensor& sum, std::span<const SomeRows> parts) {
  if (!parts.empty()) add_all(sum, false, parts);
}

void sum_rows(at::Tensor& sum, std::span<const SomeRows> parts) {
  if (parts.empty()) {
    sum.zero_();
  } else {
    add_all(sum, true, parts);
  }
}

}  // namespace cp_pool
