// Reads from outputs which keys each query saw. With q = 0, all visible keys have the same weight. V is one-hot for one
// block of keys per step, so that each element of a query's output is the weight of one key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/prober.h"
#include "cp_core/diagnosis/row_reading.h"

namespace cp_pool::diagnosis {

// What the heads of one class saw; they all saw the same.
struct Sight {
  std::vector<std::int64_t> heads;
  at::Tensor times;              // fp64 [q, kv]: as SeenKeys::times
  std::vector<RowReading> rows;  // one per query
};

struct ForwardReading {
  std::string why_not;        // why nothing could be read, as a sentence; empty if something could
  Sight sight;                // the largest class of heads that saw wrong keys; if none did, the class of head 0
  bool wrong = false;         // `sight` differs from what is expected, as rank 0 sees it
  bool heads_differ = false;  // not all heads saw the same keys, as rank 0 sees it
  bool has_lse = false;
  std::int64_t keys_asked = 0;  // how many keys, from the first on, there was time to ask for
};

// Asks for the weights of all keys, block by block. trusts_lse: an lse may show that a query saw its keys several
// times. Collective; every rank reads the same gathered results by itself.
ForwardReading read_forward(Prober& prober, const AskedCase& asked, const at::Tensor& expected, bool trusts_lse);

// Counts the valid queries whose out is NaN if padding holds NaN, and is not NaN if padding holds numbers. Collective;
// every rank gets rank 0's count. 0 if there was no time, or no result.
std::int64_t queries_spoilt_by_padding(Prober& prober, const AskedCase& asked);

// Which keys each query should see: fp64 [q, kv] of 0 and 1. Padding sees nothing and is not seen.
at::Tensor expected_sight(const AskedCase& asked, const SequenceLengths& lengths, const ProbeGrid& grid);

// bool [q, kv]: where times differ from what is expected. NaN counts as no difference.
at::Tensor wrong_pairs(const at::Tensor& times, const at::Tensor& expected);

}  // namespace cp_pool::diagnosis
