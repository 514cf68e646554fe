// Draws the mask as it was observed, with one character per cell.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <string>

#include "cp_core/diagnosis/wrong_pairs.h"

namespace cp_pool::diagnosis {
namespace {

// How an axis is cut into cells.
struct Cells {
  explicit Cells(const GridAxis& axis) {
    // With more sequences than cells, cells span several sequences, and no border is drawn.
    const auto sequences = std::ranges::count_if(axis.lengths, [](std::int64_t length) { return length > 0; });
    const std::vector<std::int64_t> lengths =
        sequences <= kMostCells ? axis.lengths : std::vector<std::int64_t>{axis.size()};
    const auto count = [&] {
      std::int64_t cells = 0;
      for (const std::int64_t length : lengths) cells += (length + rows_per_cell - 1) / rows_per_cell;
      return cells;
    };
    while (count() > kMostCells) ++rows_per_cell;
    std::int64_t start = 0;
    bool several = false;
    for (const std::int64_t length : lengths) {
      if (length > 0 && !first.empty()) borders.push_back(static_cast<std::int64_t>(first.size()));
      for (std::int64_t row = start; row < start + length; row += rows_per_cell) {
        first.push_back(row);
        std::set<int> of_cell;
        for (std::int64_t i = row; i < std::min(row + rows_per_cell, start + length); ++i) {
          of_cell.insert(axis.row(i).rank);
        }
        several = several || of_cell.size() > 1;
        ranks.push_back(axis.row(row).rank);
        owners.emplace_back(of_cell.begin(), of_cell.end());
      }
      start += length;
    }
    first.push_back(start);
    if (!several) owners.clear();
  }

  std::int64_t rows_per_cell = 1;
  std::vector<std::int64_t> first;       // the first row of each cell, then the number of rows
  std::vector<std::int64_t> borders;     // the cells that begin another sequence
  std::vector<int> ranks;                // the rank that owns the first row of each cell
  std::vector<std::vector<int>> owners;  // the ranks that own rows of each cell; empty if no cell has several
};

// The sign of the pairs of some rows.
char sign_of(const SightPairs& pairs, const std::int64_t* q, const std::int64_t* kv) {
  const auto all_times = pairs.times.accessor<double, 2>();
  const auto all_expected = pairs.expected.accessor<double, 2>();
  bool expects = false;
  bool missing = false;
  bool excess = false;
  for (std::int64_t i = q[0]; i < q[1]; ++i) {
    for (std::int64_t j = kv[0]; j < kv[1]; ++j) {
      const double times = all_times[i][j];
      const double expected = all_expected[i][j];
      // Padding queries about which nothing is promised are not judged.
      if (std::isnan(times) ? !pairs.grid.q.row(i).padding : times != expected && pairs.weighs[i].item<bool>()) {
        return '?';
      }
      expects = expects || expected > 0;
      missing = missing || times < expected;
      excess = excess || times > expected;
    }
  }
  if (missing && excess) return '!';
  if (missing || excess) return missing ? '-' : '+';
  return expects ? '.' : ' ';
}

}  // namespace

MaskPicture draw_mask(const SightPairs& pairs) {
  const Cells q(pairs.grid.q);
  const Cells kv(pairs.grid.kv);
  MaskPicture picture{.q_per_cell = q.rows_per_cell,
                      .kv_per_cell = kv.rows_per_cell,
                      .rows = {},
                      .q_borders = q.borders,
                      .kv_borders = kv.borders,
                      .q_ranks = q.ranks,
                      .kv_ranks = kv.ranks,
                      .q_owners = q.owners,
                      .kv_owners = kv.owners};
  for (std::size_t i = 0; i + 1 < q.first.size(); ++i) {
    std::string& row = picture.rows.emplace_back();
    for (std::size_t j = 0; j + 1 < kv.first.size(); ++j) row += sign_of(pairs, &q.first[i], &kv.first[j]);
  }
  return picture;
}

}  // namespace cp_pool::diagnosis
