// What an implementation declares of its shards: who owns which row, what padding rows hold, in which order heads are.
#pragma once

#include <string>
#include <variant>

#include <ATen/core/Tensor.h>

#include "cases/case.h"
#include "cases/lengths.h"
#include "cp_core/verify/conventions.h"
#include "cp_core/verify/ownership.h"

namespace cp_pool::verify {

// What rows of inputs hold that are padding. dout is 0 there, but for nan.
enum class PaddingFill {
  nan,      // a value that is read into a result shows
  garbage,  // finite numbers, some larger than any valid one: of code that multiplies padding by 0
  zeros,
};

// Which key-value head a query head reads.
enum class HeadOrder {
  blocked,      // h / (heads / kv_heads): docs/definitions.md, and what most do
  interleaved,  // h % kv_heads: of those who repeat K and V as a whole
};

struct Sharding {
  std::variant<Convention, Ownership> rows = Convention{};
  PaddingFill padding = PaddingFill::nan;
  bool judges_padding = true;  // padding rows of results are promised to be 0, and -inf in lse
  HeadOrder heads = HeadOrder::blocked;
  bool needs_lse = true;    // a step that gives no lse is wrong
  double bound_factor = 1;  // every bound is so many times as wide
};

// Why these shards cannot be made of the case over so many ranks, as a sentence: the convention does not divide the
// lengths, or a row has not exactly one owner, or a replicated row not every rank. Empty if they can.
std::string sharding_fault(const Sharding& sharding, const Case& c, const SequenceLengths& lengths, int ranks);

// The rows of every rank. There must be no sharding_fault.
Ownership ownership_of(const Sharding& sharding, Layout layout, const SequenceLengths& lengths, int ranks);

// A tensor of what padding holds.
at::Tensor padding_values(at::IntArrayRef shape, PaddingFill fill, const at::TensorOptions& options);

}  // namespace cp_pool::verify
