// What a case costs: pairs, operations and bytes of each rank, worked out from its mask and who owns what. For `cp-pool
// explain` and the figures of `--mode perf`. Where tokens are replicated they are those of our own attention, which
// computes whole sequences (cp_core/own/whole_sequences.h).
#pragma once

#include <cstdint>
#include <vector>

#include "cases/case.h"
#include "cases/comm_facts.h"
#include "cases/lengths.h"
#include "cases/mask.h"

namespace cp_pool {

// How many pairs of one of these queries and one of these keys the mask lets see each other, in a sequence of sq and
// skv valid positions.
std::int64_t visible_pairs(const Mask& mask, const Interval& queries, const Interval& keys, std::int64_t sq,
                           std::int64_t skv);

// The chunks of a padded sequence that a rank of `ranks` owns.
std::vector<Interval> owned_chunks(std::int64_t padded, int ranks, int rank);

// What one rank computes.
struct Compute {
  std::int64_t full_tiles = 0;   // a chunk of its queries and a chunk of keys, of which every query sees every key
  std::int64_t band_tiles = 0;   // the same, where some queries see some keys
  std::int64_t empty_tiles = 0;  // the same, where no query sees a key: nothing to compute
  std::int64_t pairs = 0;        // of a query and a key that it sees, over all sequences, for one head
  std::int64_t heads = 0;        // that the rank computes

  // Multiply and add are two; scores, weighted values, and for the backward the scores again and four products.
  [[nodiscard]] double forward_flops(const Case& c) const;
  [[nodiscard]] double backward_flops(const Case& c) const;
};
Compute compute_of(const Case& c, const SequenceLengths& lengths, int rank);
// Of it, what it computes with the keys of one of the places in the ring of head groups (CommFacts::head_ranks).
Compute compute_with(const Case& c, const SequenceLengths& lengths, int rank, int owner);

// The bytes of each rank's shards of what the ranks exchange: of whole sequences, where tokens are replicated.
RankBytes rank_bytes_of(const Case& c, const SequenceLengths& lengths);

// What one rank sends to others, in bytes: q, k, v, out, their gradients (those of k and v in fp32 where they are
// summed over ranks) and the statistics of rows. Bias, sinks and max_logit come on top. An upper bound where
// contributions of kernels' calls travel as they are, in 16 bits and of some rows (docs/numerics.md): with backends
// cudnn and flash.
Traffic traffic_of(const Case& c, const SequenceLengths& lengths);

}  // namespace cp_pool
