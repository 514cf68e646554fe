// What an implementation declares about its shards: which rank owns which rows, what padding rows hold, the order of
// heads.
#pragma once

#include <string>
#include <variant>

#include <ATen/core/Tensor.h>

#include "cases/case.h"
#include "cases/lengths.h"
#include "cp_core/verify/conventions.h"
#include "cp_core/verify/ownership.h"

namespace cp_pool::verify {

// What padding rows of inputs hold. dout is 0 there unless the fill is nan.
enum class PaddingFill {
  nan,      // shows in a result if it is read
  garbage,  // finite numbers, some larger than any valid one: for code that multiplies padding by 0
  zeros,
};

// Which key-value head query head h reads.
enum class HeadOrder {
  blocked,      // h / (heads / kv_heads): as in docs/definitions.md and in most implementations
  interleaved,  // h % kv_heads: in implementations that repeat K and V as a whole
};

struct Sharding {
  std::variant<Convention, Ownership> rows = Convention{};
  PaddingFill padding = PaddingFill::nan;
  bool judges_padding = true;  // the implementation promises that padding rows of results are 0, and -inf in lse
  HeadOrder heads = HeadOrder::blocked;
  bool needs_lse = true;    // a step that returns no lse fails
  double bound_factor = 1;  // factor on every bound
};

// Returns why the case cannot be sharded like this over the ranks, as a sentence: the lengths do not fit the
// convention, a row does not have exactly one owner, or a replicated row is missing on a rank. Empty if it can.
std::string sharding_fault(const Sharding& sharding, const Case& c, const SequenceLengths& lengths, int ranks);

// Returns the rows of every rank. There must be no sharding_fault.
Ownership ownership_of(const Sharding& sharding, Layout layout, const SequenceLengths& lengths, int ranks);

// Returns a tensor filled with what padding holds.
at::Tensor padding_values(at::IntArrayRef shape, PaddingFill fill, const at::TensorOptions& options);

}  // namespace cp_pool::verify
