#include "cp_core/diagnosis/error_strips.h"

#include <algorithm>
#include <cstdint>

namespace cp_pool::diagnosis {
namespace {

constexpr std::int64_t kMostCells = 96;

// Returns the rows of a result of this kind; null if its rows are not positions of a sequence.
const Side* side_with_rows(const World& world, at::Tensor verify::Results::* member) {
  using verify::Results;
  if (member == &Results::out || member == &Results::lse || member == &Results::dq) return &world.q_rows;
  if (member == &Results::dk || member == &Results::dv) return &world.kv_rows;
  return nullptr;
}

// Returns the largest value of each cell of `per_cell` values.
std::vector<double> cells_of(const at::Tensor& values, std::int64_t per_cell) {
  std::vector<double> cells;
  for (std::int64_t first = 0; first < values.numel(); first += per_cell) {
    const std::int64_t count = std::min(per_cell, values.numel() - first);
    cells.push_back(std::min(values.narrow(0, first, count).max().item<double>(), ErrorStrip::kOffTheScale));
  }
  return cells;
}

// Returns the cells that contain a row which does not continue the row before it.
std::vector<std::int64_t> borders_of(const Side& side, int rank, std::int64_t per_cell) {
  std::vector<std::int64_t> borders;
  const std::int64_t first = side.first[static_cast<std::size_t>(rank)];
  const std::int64_t count = side.first[static_cast<std::size_t>(rank) + 1] - first;
  const auto* const sequence = side.sequence.const_data_ptr<std::int64_t>() + first;
  const auto* const position = side.position.const_data_ptr<std::int64_t>() + first;
  for (std::int64_t row = 1; row < count; ++row) {
    if (sequence[row] == sequence[row - 1] && position[row] == position[row - 1] + 1) continue;
    const std::int64_t cell = row / per_cell;
    if (cell > 0 && (borders.empty() || borders.back() != cell)) borders.push_back(cell);
  }
  return borders;
}

}  // namespace

std::vector<ErrorStrip> error_strips(const Bench& bench) {
  std::vector<ErrorStrip> strips;
  const World& world = bench.world();
  for (int rank = 0; rank < world.ranks; ++rank) {
    for (const Given& given : bench.fits().given()) {
      const at::Tensor of_rank = bench.fits().errors(given).index_select(0, given.rank.eq(rank).nonzero().flatten());
      if (of_rank.numel() == 0 || of_rank.max().item<double>() <= 1) continue;
      ErrorStrip strip;
      strip.tensor = given.name;
      strip.rank = rank;
      strip.rows_per_cell = (of_rank.size(0) + kMostCells - 1) / kMostCells;
      strip.by_row = cells_of(of_rank.amax(1), strip.rows_per_cell);
      strip.by_head = cells_of(of_rank.amax(0), 1);
      if (const Side* const side = side_with_rows(world, given.member)) {
        strip.borders = borders_of(*side, rank, strip.rows_per_cell);
      }
      strips.push_back(std::move(strip));
    }
  }
  return strips;
}

}  // namespace cp_pool::diagnosis
