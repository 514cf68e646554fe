#include "cp_core/tiling.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "cp_core/mutation.h"

namespace cp_pool {
namespace {

// A distance that limits nothing, yet leaves room to add lengths to it.
constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max() / 4;

// The mask of one sequence: query i sees key j iff -left <= j - i - offset <= right.
struct Band {
  std::int64_t left = kFar;
  std::int64_t right = kFar;
  std::int64_t offset = 0;
};

Band make_band(const Mask& mask, std::int64_t sq, std::int64_t skv) {
  Band band;
  if (mask.left != kInfiniteWindow) {
    band.left = CP_MUTATE(window_left_wide, mask.left, mask.left + 1);
    band.left = CP_MUTATE(window_left_narrow, band.left, std::max<std::int64_t>(band.left - 1, 0));
    band.left = CP_MUTATE(window_left_ignored, band.left, kFar);
  }
  if (CP_MUTATE(no_window_read_literally, false, mask.left == kInfiniteWindow)) band.left = kInfiniteWindow;
  if (mask.right != kInfiniteWindow) {
    band.right = CP_MUTATE(window_right_wide, mask.right, mask.right + 1);
    band.right = CP_MUTATE(window_right_narrow, band.right, std::max<std::int64_t>(band.right - 1, 0));
    band.right = CP_MUTATE(causal_sees_next_key, band.right, band.right == 0 ? 1 : band.right);
    band.right = CP_MUTATE(causal_misses_diagonal, band.right, band.left == kFar && band.right == 0 ? -1 : band.right);
    band.right = CP_MUTATE(causal_ignored, band.right, band.right == 0 ? kFar : band.right);
  }
  band.offset = skv - sq;
  band.offset = CP_MUTATE(bottom_right_is_top_left, band.offset, 0);
  band.offset = CP_MUTATE(bottom_right_reversed, band.offset, -band.offset);
  band.offset = CP_MUTATE(mask_offset, band.offset, band.offset + 1);
  return band;
}

Band band_of(const MaskSlice& slice) {
  const auto& [queries, keys, type] = slice;
  const std::int64_t upper_left = keys.begin - queries.begin;
  const std::int64_t lower_right = keys.end - queries.end;
  switch (type) {
    case SliceType::full:
      return {};
    case SliceType::causal:
      return {.right = 0, .offset = CP_MUTATE(slice_causal_upper_left, lower_right, upper_left)};
    case SliceType::inverse_causal:
      return {.left = 0, .offset = CP_MUTATE(slice_inverse_causal_lower_right, upper_left, lower_right)};
    case SliceType::bicausal:
      return {.left = 0, .right = lower_right - upper_left, .offset = upper_left};
  }
  throw std::logic_error("unknown type of slice");
}

// The part of queries x keys inside the band; nullopt if there is none. The caller fills in sequence, q_row and k_row.
std::optional<Tile> cut_to_band(Interval queries, Interval keys, const Band& band) {
  const Interval queries_of_keys{keys.begin - band.offset - band.right, keys.end - band.offset + band.left};
  queries = intersect(queries, queries_of_keys);
  if (CP_MUTATE(tile_cut_query, false, queries.begin == queries_of_keys.begin)) ++queries.begin;
  if (queries.size() == 0) return std::nullopt;
  const Interval keys_of_queries{queries.begin + band.offset - band.left, queries.end + band.offset + band.right};
  keys = intersect(keys, keys_of_queries);
  if (CP_MUTATE(tile_cut_key, false, keys.begin == keys_of_queries.begin)) ++keys.begin;
  if (keys.size() == 0) return std::nullopt;

  Tile tile{.m = queries.end - queries.begin, .n = keys.end - keys.begin};
  const std::int64_t bottom_right = keys.end - queries.end - band.offset;
  const std::int64_t shift = CP_MUTATE(tile_window_top_left, bottom_right, keys.begin - queries.begin - band.offset);
  const std::int64_t left = std::max<std::int64_t>(band.left + shift, 0);
  const std::int64_t right = std::max<std::int64_t>(band.right - shift, 0);
  tile.left = left >= tile.n - 1 ? kInfiniteWindow : left;
  tile.right = right >= tile.m - 1 ? kInfiniteWindow : right;
  tile.q_position = queries.begin;
  tile.k_position = keys.begin;
  return tile;
}

struct Pair {
  const Run& q;
  const Run& k;
};

void append_tile(std::vector<Tile>& tiles, const Pair& runs, const Interval& queries, const Interval& keys,
                 const Band& band) {
  if (queries.size() == 0 || keys.size() == 0) return;
  if (std::optional<Tile> tile = cut_to_band(queries, keys, band)) {
    tile->sequence = runs.q.sequence;
    tile->q_row = runs.q.row + tile->q_position - runs.q.begin;
    tile->k_row = runs.k.row + tile->k_position - runs.k.begin;
    tiles.push_back(*tile);
  }
}

void append_tiles_of_chunks(std::vector<Tile>& tiles, const Pair& runs, const Interval& queries, const Interval& keys,
                            const Band& band, std::int64_t chunk) {
  const std::int64_t first = std::max<std::int64_t>(floor_div(queries.begin + band.offset, chunk), 0);
  const std::int64_t last = floor_div(queries.end - 1 + band.offset, chunk);
  for (std::int64_t c = first; c <= last; ++c) {
    const std::int64_t begin = c * chunk;
    const std::int64_t query_begin = CP_MUTATE(chunk_query_boundary, begin, begin + 1) - band.offset;
    const Interval chunk_keys{CP_MUTATE(chunk_first_key, begin, begin + 1),
                              CP_MUTATE(chunk_last_key, begin + chunk, begin + chunk + 1)};
    append_tile(tiles, runs, intersect(queries, {query_begin, query_begin + chunk}), intersect(keys, chunk_keys), band);
  }
}

void append_tiles_of_slices(std::vector<Tile>& tiles, const Pair& runs, const Interval& queries, const Interval& keys,
                            const std::vector<MaskSlice>& slices) {
  for (const MaskSlice& slice : slices) {
    if (CP_MUTATE(slice_queries_shared, false,
                  slice != *std::ranges::find(slices, slice.queries, &MaskSlice::queries))) {
      continue;
    }
    const Band band = band_of(slice);
    if (band.left + band.right < 0) continue;  // between diagonals that have changed sides there is nothing
    const std::int64_t end = CP_MUTATE(slice_last_key, slice.keys.end, slice.keys.end - 1);
    append_tile(tiles, runs, intersect(queries, {slice.queries.begin, slice.queries.end}),
                intersect(keys, {slice.keys.begin, end}), band);
  }
}

bool merge_right(Tile& a, const Tile& b) {
  if (a.q_row != b.q_row || a.m != b.m || a.k_row + a.n != b.k_row) return false;
  if (!a.full() || b.left != kInfiniteWindow) return false;
  // b and the merged tile end at the same row and key, so b's window counts from the merged tile's corner, too. It
  // hides none of a's keys: every row of b sees a key of b, and all of a's keys come before those.
  a.n += b.n;
  a.right = CP_MUTATE(tile_merge_window, b.right, a.right);
  return true;
}

bool merge_below(Tile& a, const Tile& b) {
  if (a.q_row + a.m != b.q_row || a.k_row != b.k_row) return false;
  const bool both_full = a.full() && b.full() && a.n == b.n;
  const bool finite = a.left == kInfiniteWindow && b.left == kInfiniteWindow && a.right != kInfiniteWindow &&
                      b.right != kInfiniteWindow;
  const bool one_diagonal = CP_MUTATE(tile_merge_diagonal, a.n + a.right == b.n - b.m + b.right, true);
  const bool same_keys = a.n == b.n || (a.n < b.n && CP_MUTATE(tile_merge_keys, a.right == 0, true));
  if (!both_full && !(finite && one_diagonal && same_keys)) return false;
  a.m += b.m;
  a.n = b.n;
  a.right = b.right;
  return true;
}

template <typename Merge>
std::vector<Tile> merge_neighbours(const std::vector<Tile>& tiles, Merge merge) {
  std::vector<Tile> merged;
  for (const Tile& tile : tiles) {
    if (merged.empty() || !merge(merged.back(), tile)) merged.push_back(tile);
  }
  return merged;
}

}  // namespace

std::vector<Tile> make_tiles(const std::vector<Run>& q_runs, const std::vector<Run>& k_runs,
                             const ValidLengths& lengths, const Mask& mask) {
  std::vector<Tile> tiles;
  for (const Run& q : q_runs) {
    for (const Run& k : k_runs) {
      if (CP_MUTATE(packed_sequences_seen, q.sequence != k.sequence, false)) continue;
      const auto b = static_cast<std::size_t>(q.sequence);
      const auto of_keys = static_cast<std::size_t>(k.sequence);
      const Interval queries{q.begin, std::min(q.end, CP_MUTATE(padding_queries_computed, lengths.q[b], q.end))};
      const Interval keys{k.begin, std::min(k.end, CP_MUTATE(padding_keys_seen, lengths.kv[of_keys], k.end))};
      if (queries.size() == 0 || keys.size() == 0) continue;
      const Band band = make_band(mask, lengths.q[b], lengths.kv[b]);
      if (!mask.slices.empty()) {
        append_tiles_of_slices(tiles, {.q = q, .k = k}, queries, keys, mask.slices);
      } else if (CP_MUTATE(chunk_ignored, mask.chunk, 0) == 0) {
        append_tile(tiles, {.q = q, .k = k}, queries, keys, band);
      } else {
        append_tiles_of_chunks(tiles, {.q = q, .k = k}, queries, keys, band, mask.chunk);
      }
    }
  }
  std::ranges::sort(tiles, {}, [](const Tile& tile) { return std::tuple(tile.q_row, tile.k_row); });
  return tiles;
}

std::vector<Tile> merge_tiles(const std::vector<Tile>& tiles) {
  return merge_neighbours(merge_neighbours(tiles, merge_right), merge_below);
}

TilePlan group_tiles(const std::vector<Tile>& tiles) {
  TilePlan plan;
  for (const Tile& tile : tiles) {
    const auto fits = [&tile](const TileGroup& group) {
      const Tile& last = group.tiles.back();
      const bool same_window = group.left == tile.left && group.right == tile.right;
      const bool disjoint = last.q_row + last.m <= tile.q_row;
      return CP_MUTATE(group_ignores_window, same_window, true) && CP_MUTATE(group_rows_overlap, disjoint, true);
    };
    const auto group = std::ranges::find_if(plan, fits);
    if (group == plan.end()) {
      plan.push_back({.left = tile.left, .right = tile.right, .tiles = {tile}});
    } else {
      Tile& member = group->tiles.emplace_back(tile);
      member.left = group->left;
      member.right = group->right;
    }
  }
  return plan;
}

}  // namespace cp_pool
