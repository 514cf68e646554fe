// A simulated implementation of context-parallel attention: the definition, until a hypothesis changes it.
//
// Pairs are [q rows, kv rows], rows as in World. "Place" is where a rank takes a row of keys to be: what it holds there
// may be another row.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/world.h"
#include "cp_core/verify/reference.h"

namespace cp_pool::diagnosis {

// How a pass (the forward or the backward) comes from inputs to scores.
struct Pass {
  // fp64, pairs: how often a query meets what is held at a place.
  at::Tensor times;
  // int64 [ranks, kv rows]: which row a rank holds at a place; -1 = zeros. Undefined: every row is at its place.
  at::Tensor held;
  // bool [ranks, kv rows]: places at which K stands for V and V for K. Undefined: nowhere.
  at::Tensor exchanged;
  double scale = 0;
  double bias_factor = 1;
  at::Tensor bias_index;  // int64, pairs: the element of the bias, as World::bias_index
  // Of each head that is computed: which heads of the inputs it has.
  std::vector<std::int64_t> q_head;
  std::vector<std::int64_t> kv_head;
  std::vector<std::int64_t> dout_head;
  std::vector<std::int64_t> bias_head;
  std::vector<std::int64_t> sink_head;
  // Other inputs than the world's, in the same shape. Undefined: the world's.
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
  at::Tensor dout;
  // bool, one a row: they hold NaN. Undefined: as the world's.
  at::Tensor q_poisoned;
  at::Tensor kv_poisoned;
};

// What a row had before a part joined, and the part: lse [heads, q rows]; kNothing where no key was seen.
struct Merge {
  at::Tensor keep;  // what was merged before is multiplied by it
  at::Tensor add;   // the part's out is multiplied by it
  at::Tensor lse;   // afterwards
};
inline constexpr double kNothing = -1e30;
using MergeRule = std::function<Merge(const at::Tensor& lse, const at::Tensor& part_lse, bool first)>;
// By the definition.
Merge merge_rightly(const at::Tensor& lse, const at::Tensor& part_lse, bool first);

struct Backward;

struct Model {
  // The definition.
  explicit Model(const World& of);

  const World* world;
  Pass forward;
  Pass backward;

  // In which part a pair is, int64, from 0 in the order in which parts are merged. Undefined: there is one part.
  at::Tensor part;
  std::int64_t parts = 1;
  MergeRule merge = merge_rightly;
  bool merges_rightly = true;  // `merge` is as it should be
  bool counts_parts = false;   // out is divided by the number of parts in which the row sees a key
  // The returned lse is that of this part; -1: of all but the last.
  std::optional<std::int64_t> returned_part_lse;

  // The softmax and the merge take exponentials of fp32 scores and lse themselves, not of distances to the largest.
  bool softmax_in_fp32 = false;

  double sink_times = 1;  // how often the sink joins
  at::Tensor sink;        // [heads], instead of the world's
  bool sink_needs_a_key = false;
  bool sink_in_padding = false;
  // Changes what is returned of the forward: out [q rows, heads, dim], lse [q rows, heads, 1].
  std::function<void(const World&, verify::Results&)> returned;
  // Changes gradients, and their magnitudes: by steps that are linear.
  std::function<void(const World&, verify::Results&)> returned_gradients;
  // The backward takes out and lse as they were returned, and weighs every pair by them: what most backwards do.
  // Otherwise it is the derivative of the forward.
  bool from_returned = false;
  // Sums gradients otherwise than sum_gradients() does (gradient_sums.h), whose arguments it has.
  std::function<void(const Model&, const Backward&, bool absolute, verify::Results&)> sums;
  bool lse_of_part = false;
  bool delta_of_part = false;
  bool delta_missing = false;
  bool exponentials_divided = false;  // p = exp(score) / exp(lse), in fp32
  // Takes delta as rows of dout and out have it, head by head: of each computed head which one. Empty: its own.
  std::vector<std::int64_t> delta_head;
  std::vector<std::int64_t> lse_head;  // of each computed head whose lse it takes. Empty: its own

  // Which head gets the gradients of a computed head.
  std::vector<std::int64_t> dq_head;
  std::vector<std::int64_t> dkv_head;
  // int64 [ranks, kv rows]: which row gets the gradients of a rank's place; -1 = none. Undefined: that row.
  at::Tensor landing;
  // fp64, pairs: how often a pair counts in each gradient. Undefined: once.
  at::Tensor weight_dq;
  at::Tensor weight_dk;
  at::Tensor weight_dv;
  at::Tensor weight_dbias;
  // fp64 [ranks, ranks]: how often a rank counts the share of another's queries. Of dbias where it is whole on each
  // rank.
  at::Tensor shares_dbias;
  at::Tensor shares_dsink;
  at::Tensor shares_max_logit;  // counts where it is not 0
  at::Tensor dbias_heads;       // fp64 [ranks, heads]: how often a rank counts a head in a gradient that heads share
  bool dbias_lands_at_own_head = false;   // not at the head whose bias was read
  bool dbias_of_all_ranks = false;        // where each rank has bias rows of its own, other ranks' queries had them
  at::Tensor max_logit_times;             // pairs that count in max_logit; undefined: those of the forward
  std::optional<double> max_logit_least;  // no smaller value is returned
};

}  // namespace cp_pool::diagnosis
