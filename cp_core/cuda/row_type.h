// The dtypes of rows that the loops of the host and of kernels take, without LibTorch's headers.
#pragma once

namespace cp_pool {

enum class RowType { bf16, fp16, fp32 };

template <typename Low, typename Body>
void with_low_row_types(RowType target_type, void* target, RowType part_type, const void* part, Body body) {
  if (target_type == RowType::fp32) {
    body(static_cast<float*>(target), static_cast<const Low*>(part));
  } else if (part_type == RowType::fp32) {
    body(static_cast<Low*>(target), static_cast<const float*>(part));
  } else {
    body(static_cast<Low*>(target), static_cast<const Low*>(part));
  }
}

// Calls body(pointer to the target's elements, pointer to the part's). If both have 16 bits, they have one dtype.
template <typename Bf16, typename Fp16, typename Body>
void with_row_types(RowType target_type, void* target, RowType part_type, const void* part, Body body) {
  const auto is_any = [&](RowType type) { return target_type == type || part_type == type; };
  if (is_any(RowType::bf16)) {
    with_low_row_types<Bf16>(target_type, target, part_type, part, body);
  } else if (is_any(RowType::fp16)) {
    with_low_row_types<Fp16>(target_type, target, part_type, part, body);
  } else {
    body(static_cast<float*>(target), static_cast<const float*>(part));
  }
}

}  // namespace cp_pool
