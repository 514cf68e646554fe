// The conventions by which implementations cut sequences over ranks, each from its published source, written here
// without a look at cp_core/partition.h.
//
// A convention cuts packs. Of a convention over the pack, thd has one pack: all padded sequences, one after the other,
// whatever boundaries fall inside a part. In bshd and sbhd, and of a convention per sequence, each padded sequence is a
// pack of its own.
//
// Replicated rows, the first of each sequence, are on every rank, and a convention cuts what is left of the sequences.
// A rank then holds sequence by sequence first the replicated rows, then its share of the rest.
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
  dual_chunk_ulysses,  // per sequence: dual-chunk over a ring, then its rows in order cut over the ranks of a Ulysses
                       // group. zigzag of long-context-attention (yunchang)
};

struct Convention {
  ConventionKind kind = ConventionKind::dual_chunk;
  std::int64_t stripe = 1;    // striped: rows of a stripe
  int ring = 1;               // dual_chunk_ulysses: ranks of a ring; n / ring are in a Ulysses group
  bool ulysses_inner = true;  // dual_chunk_ulysses: neighbouring ranks are in one Ulysses group; else in one ring

  bool operator==(const Convention&) const = default;
};

// Reads dual_chunk, dual_chunk_pack, contiguous, contiguous_pack, striped, striped:STRIPE, dual_chunk_ulysses:RING and
// dual_chunk_ulysses:RING:outer (Ulysses groups of ranks that are n / ring apart). nullopt: none of these.
std::optional<Convention> parse_convention(std::string_view text);
std::string to_string(const Convention& convention);

// Why n ranks cannot cut these sequences so, as a sentence; empty if they can.
std::string convention_obstacle(const Convention& convention, Layout layout, const std::vector<std::int64_t>& valid,
                                const std::vector<std::int64_t>& padded, int ranks, std::int64_t replicated = 0);

// The rows of every rank. There must be no obstacle.
RowsByRank rows_by_convention(const Convention& convention, Layout layout, const std::vector<std::int64_t>& valid,
                              const std::vector<std::int64_t>& padded, int ranks, std::int64_t replicated = 0);

}  // namespace cp_pool::verify
