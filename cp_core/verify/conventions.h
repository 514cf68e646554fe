// The conventions by which implementations shard sequences over ranks. Each follows its published source and was
// written independently of cp_core/partition.h.
//
// A convention cuts packs. For a convention over the pack, thd has a single pack: all padded sequences, one after the
// other, so that a part may span sequences. In bshd and sbhd, and for a convention per sequence, each padded sequence
// is a pack of its own.
//
// Replicated rows are the first rows of each sequence and are on every rank. A convention cuts the rest of the
// sequences. A rank then holds, for each sequence, first the replicated rows and then its share of the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"
#include "cp_core/verify/ownership.h"

namespace cp_pool::verify {

enum class ConventionKind {
  dual_chunk,          // per sequence: 2 n chunks, rank r has r and 2 n - 1 - r. Transformer Engine, and ours
  dual_chunk_pack,     // the same over the pack. axolotl-ringmaster's zigzag
  contiguous,          // per sequence: n parts, rank r has part r. Ulysses, plain rings, torch without a balancer
  contiguous_pack,     // the same over the pack. ring-flash-attention's llama3
  striped,             // over the pack: stripe i belongs to rank i mod n. Striped attention; TE-JAX with larger stripes
  paged,               // per sequence, of any length: page i belongs to rank i mod n. Keys in decoding: vLLM's DCP
  dual_chunk_ulysses,  // per sequence: dual-chunk over a ring, then the rows of a place of the ring, in order, are cut
                       // over the ranks of its Ulysses group. zigzag of long-context-attention (yunchang)
};

struct Convention {
  ConventionKind kind = ConventionKind::dual_chunk;
  std::int64_t stripe = 1;    // striped, paged: rows per stripe or page
  int ring = 1;               // dual_chunk_ulysses: ranks per ring; a Ulysses group has n / ring ranks
  bool ulysses_inner = true;  // dual_chunk_ulysses: neighbouring ranks are in one Ulysses group; else in one ring

  bool operator==(const Convention&) const = default;
};

// Reads dual_chunk, dual_chunk_pack, contiguous, contiguous_pack, striped, striped:STRIPE, paged, paged:PAGE,
// dual_chunk_ulysses:RING and dual_chunk_ulysses:RING:outer (Ulysses groups of ranks that are n / ring apart). nullopt:
// none of these.
std::optional<Convention> parse_convention(std::string_view text);
std::string to_string(const Convention& convention);

// Returns why the convention cannot shard these sequences over the ranks, as a sentence; empty if it can.
std::string convention_obstacle(const Convention& convention, Layout layout, const std::vector<std::int64_t>& valid,
                                const std::vector<std::int64_t>& padded, int ranks, std::int64_t replicated = 0);

// Returns the rows of every rank. There must be no obstacle.
RowsByRank rows_by_convention(const Convention& convention, Layout layout, const std::vector<std::int64_t>& valid,
                              const std::vector<std::int64_t>& padded, int ranks, std::int64_t replicated = 0);

}  // namespace cp_pool::verify
