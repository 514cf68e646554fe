#include "cp_core/diagnosis/wrong_pairs.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cp_pool::diagnosis {
namespace {

using verify::Convention;
using verify::ConventionKind;
using verify::LocalRow;

GridAxis make_axis(const verify::RowsByRank& by_rank, std::size_t sequences) {
  GridAxis axis{.rows = {}, .lengths = std::vector<std::int64_t>(sequences, 0), .by_rank = by_rank};
  std::vector<std::pair<LocalRow*, int>> held;  // with their ranks
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (LocalRow& row : axis.by_rank[rank]) held.emplace_back(&row, static_cast<int>(rank));
  }
  std::ranges::stable_sort(held, {}, [](const auto& of) {
    return std::tuple(of.first->sequence, of.first->position < 0, of.first->position);
  });
  const LocalRow* before = nullptr;
  std::int64_t held_position = 0;
  for (const auto& [row, rank] : held) {
    if (before != nullptr && row->position >= 0 && row->position == held_position &&
        row->sequence == before->sequence) {
      *row = *before;  // a copy of a replicated row
      axis.rows.back().on_every_rank = true;
      continue;
    }
    held_position = row->position;
    before = row;
    const std::int64_t position = axis.lengths[static_cast<std::size_t>(row->sequence)]++;
    axis.places_padding = axis.places_padding && row->position == position;
    axis.rows.push_back({.sequence = row->sequence, .position = position, .padding = row->canonical < 0, .rank = rank});
    *row = {.sequence = row->sequence, .position = position, .canonical = axis.size() - 1};
  }
  return axis;
}

// Sets the chunk number of each row. The whole axis is cut into chunks (over_pack), or each sequence.
void number_chunks(GridAxis& axis, bool over_pack, std::int64_t chunks) {
  for (std::size_t i = 0; i < axis.rows.size(); ++i) {
    GridRow& row = axis.rows[i];
    const std::int64_t length = over_pack ? axis.size() : axis.lengths[static_cast<std::size_t>(row.sequence)];
    const std::int64_t position = over_pack ? static_cast<std::int64_t>(i) : row.position;
    row.chunk = position / std::max<std::int64_t>(length / chunks, 1);
  }
}

constexpr std::size_t kMostRectangles = 8;
// A smaller weight counts as 0.
constexpr double kNoWeight = 1e-4;

// Finds the largest rectangle in one pass over the rows. Each pair of a row is the foot of a bar of pairs with the same
// label above it. A rectangle that ends in this row spans adjacent bars and is as high as the lowest of them.
class BlockSearch {
 public:
  explicit BlockSearch(PairLabels& labels) : labels_(labels), heights_(static_cast<std::size_t>(labels.kv), 0) {}

  PairBlock largest() {
    for (std::int64_t i = 0; i < labels_.q; ++i) scan(i);
    return best_;
  }

 private:
  struct Bar {
    std::int64_t first;  // the first column of the run of bars that are at least this high
    std::int64_t height;
  };

  void scan(std::int64_t i) {
    std::int64_t before = 0;
    for (std::int64_t j = 0; j < labels_.kv; ++j) {
      const std::int64_t label = labels_.at(i, j);
      std::int64_t& height = heights_[static_cast<std::size_t>(j)];
      height = label == 0 ? 0 : i > 0 && labels_.at(i - 1, j) == label ? height + 1 : 1;
      if (label != before) (void)lower(i, j, 0);
      before = label;
      const std::int64_t first = lower(i, j, height);
      if (height > 0 && (bars_.empty() || bars_.back().height < height)) bars_.push_back({first, height});
    }
    (void)lower(i, labels_.kv, 0);
  }

  // Ends the rectangles before column j that are higher than `height`. Returns the first column from which on bars are
  // at least `height` high.
  std::int64_t lower(std::int64_t i, std::int64_t j, std::int64_t height) {
    std::int64_t first = j;
    while (!bars_.empty() && bars_.back().height > height) {
      first = bars_.back().first;
      const PairBlock block{.q = {i - bars_.back().height + 1, i}, .kv = {first, j - 1}, .label = labels_.at(i, first)};
      if (block.pairs() > best_.pairs() || best_.label == 0) best_ = block;
      bars_.pop_back();
    }
    return first;
  }

  PairLabels& labels_;
  std::vector<std::int64_t> heights_;
  std::vector<Bar> bars_;  // bars of the current label, ascending in height
  PairBlock best_;
};

// noun: the singular and the plural.
std::string rows_text(const GridAxis& axis, RowSpan rows, std::pair<const char*, const char*> noun, bool names_sequence,
                      bool with_chunk) {
  const GridRow& first = axis.row(rows.first);
  const bool one = rows.first == rows.last;
  std::string text = one ? noun.first : noun.second;
  if (first.padding) text = fmt::format("{} padding {}", rows.last - rows.first + 1, text);
  if (!first.padding || axis.places_padding) {
    text +=
        one ? fmt::format(" {}", first.position) : fmt::format(" {}..{}", first.position, axis.row(rows.last).position);
  }
  if (names_sequence) text += fmt::format(" of sequence {}", first.sequence);
  std::set<std::int64_t> ranks;
  std::set<std::int64_t> chunks;
  for (std::int64_t i = rows.first; i <= rows.last; ++i) {
    if (!axis.row(i).on_every_rank) ranks.insert(axis.row(i).rank);
    if (axis.row(i).chunk >= 0) chunks.insert(axis.row(i).chunk);
  }
  const std::string chunk = with_chunk && !chunks.empty() ? named_numbers("chunk", chunks) + ", " : "";
  return fmt::format("{} ({}{})", text, chunk, ranks.empty() ? "every rank" : named_numbers("rank", ranks));
}

// Gathers the pairs to which `of` gives a number of times into rectangles. count: that of these pairs.
template <typename Times>
std::vector<PairRectangle> rectangles_of(const SightPairs& pairs, std::string_view verb, const Times& of,
                                         std::int64_t& count) {
  const ProbeGrid& grid = pairs.grid;
  PairLabels labels{.q = grid.q.size(), .kv = grid.kv.size()};
  // No rectangle crosses from one sequence into the next, or from valid rows into padding: labels differ there.
  const auto section = [](const GridRow& row) { return 2 * row.sequence + (row.padding ? 1 : 0); };
  const std::int64_t sections = 2 * static_cast<std::int64_t>(grid.q.lengths.size());
  for (std::int64_t i = 0; i < labels.q; ++i) {
    for (std::int64_t j = 0; j < labels.kv; ++j) {
      const std::int64_t label = of(i, j);
      if (label == 0) continue;
      ++count;
      labels.at(i, j) = (label * sections + section(grid.q.row(i))) * sections + section(grid.kv.row(j));
    }
  }
  std::vector<PairRectangle> rectangles;
  for (const PairBlock& block : largest_blocks(std::move(labels), kMostRectangles)) {
    const GridRow& query = grid.q.row(block.q.first);
    const GridRow& key = grid.kv.row(block.kv.first);
    const std::int64_t times = block.label / sections / sections;
    const std::string often = times == 1 ? "" : times == 2 ? " twice" : fmt::format(" {} times", times);
    rectangles.push_back({.text = fmt::format("{}{} {} {}{}", pairs.prefix, queries_text(grid.q, block.q), verb,
                                              keys_text(grid.kv, block.kv, query.sequence), often),
                          .q_sequence = query.sequence,
                          .q_first = query.position,
                          .q_last = grid.q.row(block.q.last).position,
                          .kv_sequence = key.sequence,
                          .kv_first = key.position,
                          .kv_last = grid.kv.row(block.kv.last).position,
                          .times = times});
  }
  return rectangles;
}

// --- The picture ---

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

ProbeGrid make_grid(const Case& c, const SequenceLengths& lengths, const verify::Sharding& sharding, int ranks) {
  const verify::Ownership owners = verify::ownership_of(sharding, c.layout, lengths, ranks);
  const std::size_t sequences = lengths.valid_q.size();
  ProbeGrid grid{.q = make_axis(owners.q, sequences), .kv = make_axis(owners.kv, sequences)};
  const auto* const convention = std::get_if<Convention>(&sharding.rows);
  if (convention == nullptr || lengths.replicated_q > 0) return grid;
  const bool by_pack = convention->kind == ConventionKind::dual_chunk_pack;
  if (!by_pack && convention->kind != ConventionKind::dual_chunk) return grid;
  for (GridAxis* const axis : {&grid.q, &grid.kv}) {
    number_chunks(*axis, by_pack && c.layout == Layout::thd, std::int64_t{2} * ranks);
  }
  return grid;
}

std::string named_numbers(std::string_view noun, const std::set<std::int64_t>& numbers) {
  constexpr std::int64_t kMost = 8;
  const auto count = static_cast<std::int64_t>(numbers.size());
  const std::string name = fmt::format("{}{}", noun, count == 1 ? "" : "s");
  const std::int64_t first = *numbers.begin();
  const std::int64_t last = *numbers.rbegin();
  if (count > 2 && last - first + 1 == count) return fmt::format("{} {}..{}", name, first, last);
  if (count <= kMost) return fmt::format("{} {}", name, fmt::join(numbers, ", "));
  return fmt::format("{} {} and {} more", name, fmt::join(numbers.begin(), std::next(numbers.begin(), kMost), ", "),
                     count - kMost);
}

std::vector<PairBlock> largest_blocks(PairLabels labels, std::size_t most) {
  std::vector<PairBlock> blocks;
  while (blocks.size() < most) {
    const PairBlock block = BlockSearch(labels).largest();
    if (block.label == 0) break;
    for (std::int64_t i = block.q.first; i <= block.q.last; ++i) {
      for (std::int64_t j = block.kv.first; j <= block.kv.last; ++j) labels.at(i, j) = 0;
    }
    blocks.push_back(block);
  }
  return blocks;
}

std::string queries_text(const GridAxis& axis, RowSpan rows) {
  const bool several = axis.rows.front().sequence != axis.rows.back().sequence;
  return rows_text(axis, rows, {"query", "queries"}, several, /*with_chunk=*/false);
}

std::string keys_text(const GridAxis& axis, RowSpan rows, std::int64_t sequence_of_queries) {
  const bool names_sequence = axis.row(rows.first).sequence != sequence_of_queries;
  return rows_text(axis, rows, {"key", "keys"}, names_sequence, /*with_chunk=*/true);
}

WrongPairs find_wrong_pairs(const SightPairs& pairs) {
  const auto times = pairs.times.accessor<double, 2>();
  const auto expected = pairs.expected.accessor<double, 2>();
  const auto weighs = pairs.weighs.accessor<bool, 1>();
  WrongPairs found;
  found.missing = rectangles_of(
      pairs, "did not see",
      [&](std::int64_t i, std::int64_t j) { return expected[i][j] != 0 && std::abs(times[i][j]) <= kNoWeight; },
      found.missing_pairs);
  for (PairRectangle& one : found.missing) one.times = 0;
  // How often a pair was seen that should not be, or more than once; 1 where weights are not whole numbers.
  const auto excess = [&](std::int64_t i, std::int64_t j) -> std::int64_t {
    const double seen = times[i][j];
    if (std::isnan(seen)) return 0;
    if (weighs[i]) return expected[i][j] == 0 && std::abs(seen) > kNoWeight ? 1 : 0;
    return seen > expected[i][j] ? static_cast<std::int64_t>(seen) : 0;
  };
  found.excess = rectangles_of(pairs, "saw", excess, found.excess_pairs);
  return found;
}

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
