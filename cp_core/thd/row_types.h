// Dispatches on the dtypes of a target and a part that is added to it. Each is fp32 or 16-bit; if both are 16-bit, they
// have the same dtype.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>
#include <c10/util/Half.h>

#include "cp_core/cuda/row_type.h"

namespace cp_pool {

// Returns the dtype of the rows. Throws c10::Error for dtypes that kernels do not take.
inline RowType row_type(const at::Tensor& rows) {
  switch (rows.scalar_type()) {
    case at::kBFloat16:
      return RowType::bf16;
    case at::kHalf:
      return RowType::fp16;
    case at::kFloat:
      return RowType::fp32;
    default:
      TORCH_CHECK(false, "no kernel for rows of ", rows.scalar_type());
  }
}

// Throws c10::Error unless both are contiguous [rows, ...], with rows of one size, on one device and of such dtypes.
inline void check_row_types(const at::Tensor& target, const at::Tensor& part) {
  TORCH_CHECK(target.is_contiguous() && part.is_contiguous() && target.device() == part.device() &&
                  target.sizes().slice(1) == part.sizes().slice(1),
              "rows of ", part.sizes(), " do not fit rows of ", target.sizes());
  const auto one_of = [](at::ScalarType type, at::ScalarType low) { return type == low || type == at::kFloat; };
  const at::ScalarType to = target.scalar_type();
  const at::ScalarType from = part.scalar_type();
  TORCH_CHECK(
      (one_of(to, at::kBFloat16) && one_of(from, at::kBFloat16)) || (one_of(to, at::kHalf) && one_of(from, at::kHalf)),
      "rows of ", from, " cannot be combined with rows of ", to);
}

// Calls body(pointer to the target's elements, pointer to the part's).
template <typename Body>
void with_row_types(const at::Tensor& target, const at::Tensor& part, Body body) {
  check_row_types(target, part);
  with_row_types<c10::BFloat16, c10::Half>(row_type(target), target.mutable_data_ptr(), row_type(part),
                                           part.const_data_ptr(), body);
}

}  // namespace cp_pool
