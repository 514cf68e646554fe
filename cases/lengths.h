// The lengths of a case's sequences, resolved: the one place where they are drawn and padded.
#pragma once

#include <cstdint>
#include <vector>

#include "cases/case.h"

namespace cp_pool {

// Per sequence, batch entries each. valid <= padded, and padded % (2 * cp_size) == 0 (dual-chunk partition).
// bshd and sbhd: valid == padded == seqlen. thd without pad_between_seqs: valid == padded.
struct SequenceLengths {
  std::vector<std::int64_t> valid_q;
  std::vector<std::int64_t> padded_q;
  std::vector<std::int64_t> valid_kv;
  std::vector<std::int64_t> padded_kv;

  bool operator==(const SequenceLengths&) const = default;
};

// The case must be valid (validate in case_json.h). With thd and no explicit seqlens each length is uniform in
// 0..seqlen_q, from the seed alone (the same on every machine), then padded up to a multiple of 2 * cp_size; without
// pad_between_seqs the padded length is the valid one. With seqlens_kv null the kv lengths are the q lengths if
// seqlen_kv == seqlen_q, else they are drawn in 0..seqlen_kv, after those of q.
SequenceLengths resolve_lengths(const Case& c);

}  // namespace cp_pool
