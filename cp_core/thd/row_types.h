// Dispatches on the dtypes of a target and a part that is added to it. Each is fp32 or 16-bit; if both are 16-bit, they
// have the same dtype.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>
#include <c10/util/Half.h>

namespace cp_pool {

template <typename Low, typename Body>
void with_low_row_types(const at::Tensor& target, const at::Tensor& part, Body body) {
  const at::ScalarType low = c10::CppTypeToScalarType<Low>::value;
  auto* to = target.mutable_data_ptr();
  const auto* from = part.const_data_ptr();
  if (target.scalar_type() == low && part.scalar_type() == low) {
    body(static_cast<Low*>(to), static_cast<const Low*>(from));
  } else if (target.scalar_type() == low) {
    body(static_cast<Low*>(to), static_cast<const float*>(from));
  } else {
    body(static_cast<float*>(to), static_cast<const Low*>(from));
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
  const auto is_any = [&](at::ScalarType type) { return target.scalar_type() == type || part.scalar_type() == type; };
  if (is_any(at::kBFloat16)) {
    with_low_row_types<c10::BFloat16>(target, part, body);
  } else if (is_any(at::kHalf)) {
    with_low_row_types<c10::Half>(target, part, body);
  } else {
    body(static_cast<float*>(target.mutable_data_ptr()), static_cast<const float*>(part.const_data_ptr()));
  }
}

}  // namespace cp_pool
