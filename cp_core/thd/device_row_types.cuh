// The dtypes of row_types.h as CUDA types.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

#include "cp_core/thd/row_launch.h"

namespace cp_pool::cuda {

template <typename Low, typename Body>
void with_low_row_types(const DeviceRows& target, const DeviceRows& part, Body body) {
  if (target.type == RowType::fp32) {
    body(static_cast<float*>(target.data), static_cast<const Low*>(part.data));
  } else if (part.type == RowType::fp32) {
    body(static_cast<Low*>(target.data), static_cast<const float*>(part.data));
  } else {
    body(static_cast<Low*>(target.data), static_cast<const Low*>(part.data));
  }
}

// Calls body(pointer to the target's elements, pointer to the part's).
template <typename Body>
void with_row_types(const DeviceRows& target, const DeviceRows& part, Body body) {
  const auto is_any = [&](RowType type) { return target.type == type || part.type == type; };
  if (is_any(RowType::bf16)) {
    with_low_row_types<__nv_bfloat16>(target, part, body);
  } else if (is_any(RowType::fp16)) {
    with_low_row_types<__half>(target, part, body);
  } else {
    body(static_cast<float*>(target.data), static_cast<const float*>(part.data));
  }
}

}  // namespace cp_pool::cuda
