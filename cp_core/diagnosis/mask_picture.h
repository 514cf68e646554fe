// Draws the mask as it was observed, with one character per cell (cases/diagnosis.h).
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cases/diagnosis.h"
#include "cp_core/diagnosis/probe_grid.h"
#include "cp_core/diagnosis/row_reading.h"

namespace cp_pool::diagnosis {

// The most cells in each direction.
inline constexpr std::int64_t kMostCells = 64;

// times, expected: fp64 [q, kv], as in SeenKeys. rows: one per query.
MaskPicture draw_mask(const ProbeGrid& grid, const at::Tensor& times, const at::Tensor& expected,
                      const std::vector<RowReading>& rows);

}  // namespace cp_pool::diagnosis
