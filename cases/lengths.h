// The lengths of a case's sequences, resolved: the one place where they are drawn and padded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cases/case.h"

namespace cp_pool {

// Per sequence, batch entries each. valid <= padded, and what is padded beyond the replicated tokens divides by
// 2 * cp_size (dual-chunk partition). bshd and sbhd: valid == padded == seqlen. thd without pad_between_seqs: valid ==
// padded.
struct SequenceLengths {
  std::vector<std::int64_t> valid_q;
  std::vector<std::int64_t> padded_q;
  std::vector<std::int64_t> valid_kv;
  std::vector<std::int64_t> padded_kv;
  std::int64_t replicated = 0;  // that of the case

  bool operator==(const SequenceLengths&) const = default;
};

// How many tokens of a sequence with so many valid ones are on every rank.
constexpr std::int64_t replicated_tokens(std::int64_t replicated, std::int64_t valid) {
  return std::min(replicated, valid);
}

// The case must be valid (validate in case_json.h). With thd and no explicit seqlens each length is uniform in
// 0..seqlen_q, from the seed alone (the same on every machine); then the part that is not replicated is padded up to a
// multiple of 2 * cp_size. Without pad_between_seqs the padded length is the valid one. With seqlens_kv null the kv
// lengths are the q lengths if seqlen_kv == seqlen_q, else they are drawn in 0..seqlen_kv, after those of q.
SequenceLengths resolve_lengths(const Case& c);

// The same sequences with nothing replicated: all of each is cut over the ranks, and padded for that. So does our own
// attention compute them.
SequenceLengths without_replication(const SequenceLengths& lengths, int cp_size);

}  // namespace cp_pool
