#include "cases/search/edges.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "cases/comm_facts.h"
#include "cases/dual_chunk.h"
#include "cases/lengths.h"

namespace cp_pool::search {
namespace {

// Whether a side of the window has `positions` positions, one more or one less.
bool window_ends_at(const Case& c, std::int64_t positions) {
  return std::ranges::any_of(
      c.window, [positions](std::int64_t side) { return side != kInfiniteWindow && std::abs(side - positions) <= 1; });
}

bool has_length(const Case& c, std::int64_t length) {
  const SequenceLengths lengths = resolve_lengths(c);
  return std::ranges::count(lengths.valid_q, length) + std::ranges::count(lengths.valid_kv, length) > 0;
}

constexpr std::array kEdges{
    Edge{"chunk = piece", [](const Case& c) { return c.chunk == piece_of(c); }},
    Edge{"window = chunk +- 1", [](const Case& c) { return c.chunk > 0 && window_ends_at(c, c.chunk); }},
    Edge{"window = piece +- 1", [](const Case& c) { return window_ends_at(c, piece_of(c)); }},
    Edge{"an empty sequence", [](const Case& c) { return has_length(c, 0); }},
    Edge{"a sequence of one token", [](const Case& c) { return has_length(c, 1); }},
    Edge{"kv heads = ranks", [](const Case& c) { return c.kv_heads == c.cp_size; }},
    Edge{"kv heads < ranks", [](const Case& c) { return c.kv_heads < head_ranks(c); }},
    Edge{"an odd ring", [](const Case& c) { return c.cp_size > 1 && c.cp_size % 2 == 1; }},
    Edge{"equal lengths", [](const Case& c) { return c.seqlen_q == c.seqlen_kv; }},
    Edge{"more queries than keys", [](const Case& c) { return c.seqlen_q > c.seqlen_kv; }},
    Edge{"more keys than queries", [](const Case& c) { return c.seqlen_q < c.seqlen_kv; }},
};

}  // namespace

std::int64_t piece_of(const Case& c) {
  const std::int64_t pieces = dual_chunks(c.cp_size);
  return (c.seqlen_q + pieces - 1) / pieces;
}

std::span<const Edge> edges() {
  return kEdges;
}

}  // namespace cp_pool::search
