#include "cp_core/diagnosis/probe_grid.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <variant>

namespace cp_pool::diagnosis {
namespace {

using verify::Convention;
using verify::ConventionKind;
using verify::LocalRow;

// A row that a rank holds, before rows are numbered.
struct HeldRow {
  std::int64_t position;
  int rank;
  std::size_t place;  // index in the rank's packed order
  bool padding;
};

// Returns the rows of each sequence over all ranks, sorted by position, padding without a position last.
std::vector<std::vector<HeldRow>> by_sequence(const verify::RowsByRank& by_rank,
                                              const std::vector<std::int64_t>& valid) {
  std::vector<std::vector<HeldRow>> sequences(valid.size());
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (std::size_t place = 0; place < by_rank[rank].size(); ++place) {
      const LocalRow& row = by_rank[rank][place];
      sequences[static_cast<std::size_t>(row.sequence)].push_back(
          {row.position, static_cast<int>(rank), place, row.canonical < 0});
    }
  }
  // Padding without a position of its own has position -1.
  const auto order = [](const HeldRow& row) {
    return std::tuple(row.padding && row.position < 0, row.position, row.rank, row.place);
  };
  for (std::vector<HeldRow>& rows : sequences) std::ranges::sort(rows, {}, order);
  return sequences;
}

GridAxis make_axis(const verify::RowsByRank& by_rank, const std::vector<std::int64_t>& valid) {
  GridAxis axis;
  axis.by_rank = by_rank;
  std::int64_t sequence = 0;
  for (const std::vector<HeldRow>& held : by_sequence(by_rank, valid)) {
    axis.lengths.push_back(static_cast<std::int64_t>(held.size()));
    for (std::size_t i = 0; i < held.size(); ++i) {
      const auto position = static_cast<std::int64_t>(i);
      axis.places_padding = axis.places_padding && held[i].position == position;
      LocalRow& local = axis.by_rank[static_cast<std::size_t>(held[i].rank)][held[i].place];
      local = {.sequence = sequence, .position = position, .canonical = axis.size()};
      axis.rows.push_back(
          {.sequence = sequence, .position = position, .padding = held[i].padding, .rank = held[i].rank});
    }
    ++sequence;
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

}  // namespace

std::int64_t GridAxis::sequences() const {
  return std::ranges::count_if(lengths, [](std::int64_t length) { return length > 0; });
}

ProbeGrid make_grid(const Case& c, const SequenceLengths& lengths, const verify::Sharding& sharding, int ranks) {
  const verify::Ownership owners = verify::ownership_of(sharding, c.layout, lengths, ranks);
  ProbeGrid grid{.q = make_axis(owners.q, lengths.valid_q), .kv = make_axis(owners.kv, lengths.valid_kv)};
  const auto* const convention = std::get_if<Convention>(&sharding.rows);
  if (convention == nullptr) return grid;
  const bool by_pack = convention->kind == ConventionKind::dual_chunk_pack;
  if (!by_pack && convention->kind != ConventionKind::dual_chunk) return grid;
  for (GridAxis* const axis : {&grid.q, &grid.kv}) {
    number_chunks(*axis, by_pack && c.layout == Layout::thd, std::int64_t{2} * ranks);
  }
  return grid;
}

}  // namespace cp_pool::diagnosis
