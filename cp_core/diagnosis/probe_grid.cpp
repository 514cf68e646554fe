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

}  // namespace cp_pool::diagnosis
