// Which keys each query saw, read off outputs: with q = 0 all visible keys weigh the same, and with one-hot V, a block
// of keys a step, each element of a query's output is the weight of one key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/pair_values.h"
#include "cp_core/diagnosis/prober.h"
#include "cp_core/diagnosis/row_reading.h"

namespace cp_pool::diagnosis {

// What a class of heads saw.
struct Sight {
  std::vector<std::int64_t> heads;
  at::Tensor weights;            // fp32 [q, kv]: elements of out
  at::Tensor times;              // fp64 [q, kv]: as SeenKeys::times
  std::vector<RowReading> rows;  // of each query
};

struct ForwardReading {
  std::string why_not;        // nothing can be read, as a sentence; empty if it can
  Sight sight;                // of the heads that saw wrong keys, the class of most; if none did, that of head 0
  bool wrong = false;         // it differs from what is expected. Rank 0's word, as the next
  bool heads_differ = false;  // other heads saw other keys
  bool has_lse = false;
  std::int64_t keys_asked = 0;             // the first so many; the others were left for want of time
  std::vector<std::int64_t> unread_heads;  // for want of memory
};

// Asks for the weights of all keys, block by block. Collective; each rank reads for itself what all have.
ForwardReading read_forward(Prober& prober, const AskedCase& asked, const at::Tensor& expected);

// Whether all heads of another asked case give the keys of the block from `first` on the weights of `sight`. nullopt:
// there is no time, or no result. Collective; rank 0's word.
std::optional<bool> sees_the_same(Prober& prober, const AskedCase& other, const Sight& sight, std::int64_t first);

// Of how many valid queries out or lse is NaN where padding holds NaN, and is finite where it does not. Collective.
std::int64_t queries_spoilt_by_padding(Prober& prober, const AskedCase& asked);

// fp64 [q, kv], 0 and 1: which keys each query should see. Padding sees nothing and is not seen.
at::Tensor expected_sight(const AskedCase& asked, const SequenceLengths& lengths, const ProbeGrid& grid);

// Where times differ from what is expected. NaN differs from nothing.
at::Tensor wrong_pairs(const at::Tensor& times, const at::Tensor& expected);

}  // namespace cp_pool::diagnosis
