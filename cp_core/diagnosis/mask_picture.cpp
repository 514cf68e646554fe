#include "cp_core/diagnosis/mask_picture.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <string>

namespace cp_pool::diagnosis {
namespace {

// How an axis is cut into cells.
struct Cells {
  std::int64_t rows_per_cell = 1;
  std::vector<std::int64_t> first;       // the first row of each cell, then the number of rows
  std::vector<std::int64_t> borders;     // the cells that begin another sequence
  std::vector<int> ranks;                // the rank that owns the first row of each cell
  std::vector<std::vector<int>> owners;  // the ranks that own rows of each cell

  // Empty if no cell has several owners.
  [[nodiscard]] std::vector<std::vector<int>> owners_if_several() const {
    const bool several = std::ranges::any_of(owners, [](const auto& of_cell) { return of_cell.size() > 1; });
    return several ? owners : std::vector<std::vector<int>>{};
  }
};

std::int64_t cells_of(std::int64_t rows, std::int64_t rows_per_cell) {
  return (rows + rows_per_cell - 1) / rows_per_cell;
}

std::int64_t cells_of_all(const std::vector<std::int64_t>& lengths, std::int64_t rows_per_cell) {
  std::int64_t cells = 0;
  for (const std::int64_t length : lengths) cells += cells_of(length, rows_per_cell);
  return cells;
}

Cells cut_into_cells(const GridAxis& axis) {
  // With more sequences than cells, cells span several sequences, and no border is drawn.
  const bool by_sequence = axis.sequences() <= kMostCells;
  const std::vector<std::int64_t> lengths = by_sequence ? axis.lengths : std::vector<std::int64_t>{axis.size()};
  Cells cells;
  while (cells_of_all(lengths, cells.rows_per_cell) > kMostCells) ++cells.rows_per_cell;
  std::int64_t start = 0;
  for (const std::int64_t length : lengths) {
    if (length > 0 && !cells.first.empty()) cells.borders.push_back(static_cast<std::int64_t>(cells.first.size()));
    for (std::int64_t row = start; row < start + length; row += cells.rows_per_cell) {
      cells.first.push_back(row);
      cells.ranks.push_back(axis.row(row).rank);
      std::set<int> owners;
      for (std::int64_t i = row; i < std::min(row + cells.rows_per_cell, start + length); ++i) {
        owners.insert(axis.row(i).rank);
      }
      cells.owners.emplace_back(owners.begin(), owners.end());
    }
    start += length;
  }
  cells.first.push_back(start);
  return cells;
}

// What the pairs of a cell show.
struct CellSight {
  bool expected = false;
  bool missing = false;
  bool excess = false;
  bool no_number = false;

  [[nodiscard]] char sign() const {
    if (no_number) return '?';
    if (missing && excess) return '!';
    if (missing) return '-';
    if (excess) return '+';
    return expected ? '.' : ' ';
  }
};

class Painter {
 public:
  Painter(const ProbeGrid& grid, const at::Tensor& times, const at::Tensor& expected,
          const std::vector<RowReading>& rows)
      : grid_(grid),
        rows_(rows),
        times_(times.const_data_ptr<double>()),
        expected_(expected.const_data_ptr<double>()) {}

  [[nodiscard]] char sign(std::int64_t q_first, std::int64_t q_end, std::int64_t kv_first, std::int64_t kv_end) const {
    CellSight cell;
    for (std::int64_t i = q_first; i < q_end; ++i) {
      for (std::int64_t j = kv_first; j < kv_end; ++j) look_at(i, j, cell);
    }
    return cell.sign();
  }

 private:
  void look_at(std::int64_t i, std::int64_t j, CellSight& cell) const {
    const double times = times_[i * grid_.kv.size() + j];
    const double expected = expected_[i * grid_.kv.size() + j];
    cell.expected = cell.expected || expected > 0;
    if (std::isnan(times)) {
      // Padding queries about which nothing is promised are not judged.
      cell.no_number = cell.no_number || !grid_.q.row(i).padding;
      return;
    }
    const bool weighs = rows_[static_cast<std::size_t>(i)].kind == RowReading::Kind::weights;
    cell.no_number = cell.no_number || (weighs && times != expected);
    cell.missing = cell.missing || times < expected;
    cell.excess = cell.excess || times > expected;
  }

  const ProbeGrid& grid_;
  const std::vector<RowReading>& rows_;
  const double* times_;
  const double* expected_;
};

}  // namespace

MaskPicture draw_mask(const ProbeGrid& grid, const at::Tensor& times, const at::Tensor& expected,
                      const std::vector<RowReading>& rows) {
  const Cells q = cut_into_cells(grid.q);
  const Cells kv = cut_into_cells(grid.kv);
  const Painter painter(grid, times, expected, rows);
  MaskPicture picture{.q_per_cell = q.rows_per_cell,
                      .kv_per_cell = kv.rows_per_cell,
                      .rows = {},
                      .q_borders = q.borders,
                      .kv_borders = kv.borders,
                      .q_ranks = q.ranks,
                      .kv_ranks = kv.ranks,
                      .q_owners = q.owners_if_several(),
                      .kv_owners = kv.owners_if_several()};
  for (std::size_t i = 0; i + 1 < q.first.size(); ++i) {
    std::string row;
    for (std::size_t j = 0; j + 1 < kv.first.size(); ++j) {
      row += painter.sign(q.first[i], q.first[i + 1], kv.first[j], kv.first[j + 1]);
    }
    picture.rows.push_back(row);
  }
  return picture;
}

}  // namespace cp_pool::diagnosis
