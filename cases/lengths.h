// The lengths of a case's sequences. This is the only place where they are drawn and padded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cases/case.h"

namespace cp_pool {

// The lengths in tokens; each vector has `batch` entries. valid <= padded. The padded length without the replicated
// tokens is a multiple of 2 * cp_size (dual-chunk partition). bshd and sbhd: valid == seqlen. Without pad_between_seqs:
// valid == padded.
struct SequenceLengths {
  std::vector<std::int64_t> valid_q;
  std::vector<std::int64_t> padded_q;
  std::vector<std::int64_t> valid_kv;
  std::vector<std::int64_t> padded_kv;
  std::int64_t replicated_q = 0;  // how many tokens at the beginning of each sequence every rank holds
  std::int64_t replicated_kv = 0;

  bool operator==(const SequenceLengths&) const = default;
};

// Whether each sequence has as many keys as queries, explicit and drawn lengths alike.
inline bool keys_like_queries(const Case& c) {
  return c.seqlen_q == c.seqlen_kv && !c.seqlens_kv;
}

// How many query tokens at the beginning of each sequence every rank holds, if it has so many. Of keys these are
// c.replicated.
constexpr std::int64_t replicated_queries(const Case& c) {
  return c.all_queries ? c.seqlen_q : c.replicated;
}
// Whether every rank holds some tokens.
constexpr bool has_replicated(const Case& c) {
  return c.all_queries || c.replicated > 0;
}

// How many tokens of a sequence with `valid` valid tokens every rank holds.
constexpr std::int64_t replicated_tokens(std::int64_t replicated, std::int64_t valid) {
  return std::min(replicated, valid);
}

// The case must be valid. With thd and without explicit seqlens, lengths are drawn from 0..seqlen, uniformly, by the
// seed alone, the same on every machine; one with an even number of tokens to split is made one shorter (0 becomes 1),
// so that each needs padding. Then the part that is not replicated is padded up to a multiple of 2 * cp_size; without
// pad_between_seqs the valid length becomes the padded one. If seqlens_kv is null, the kv lengths are the q lengths if
// seqlen_kv == seqlen_q; else they are drawn from 0..seqlen_kv, after those of q.
SequenceLengths resolve_lengths(const Case& c);

// Returns the same sequences with nothing replicated: each is padded and split over the ranks as a whole. cp-pool's own
// attention computes them in this form.
SequenceLengths without_replication(const SequenceLengths& lengths, int cp_size);

}  // namespace cp_pool
