// Whole attention problems for tests: made from a seed, computed densely in fp64 from the definition, cut into shards
// by its own arithmetic, and run on ranks of this process.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/context_parallel/context_parallel.h"

namespace cp_pool::test {

// Packed tensors of whole sequences [sum of padded lengths, heads, dim], NaN at padding.
struct WholeInputs {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
  at::Tensor dout;
  at::Tensor bias;  // [batch or 1, heads or 1, s_q or 1, s_kv], the largest padded lengths
  at::Tensor sink;
};

// 0 at padding; lse -inf there. All fp64.
struct WholeResults {
  at::Tensor out;
  at::Tensor lse;  // [heads, tokens]
  at::Tensor max_logit;
  at::Tensor dq;
  at::Tensor dk;
  at::Tensor dv;
  at::Tensor dbias;
  at::Tensor dsink;
  at::Tensor zero_q;   // bool [q tokens]: padding, or sees no key
  at::Tensor zero_kv;  // bool [kv tokens]: padding, or seen by no query
};

WholeInputs make_inputs(const AttentionProblem& problem, at::ScalarType dtype, std::uint64_t seed);
WholeResults dense_attention(const AttentionProblem& problem, const WholeInputs& inputs);

// The rows of a packed whole tensor that a rank holds, dimension `dim` counting rows. padded: the lengths of its
// sequences.
at::Tensor shard_rows(const at::Tensor& whole, std::int64_t dim, const std::vector<std::int64_t>& padded, int ranks,
                      int rank);

struct RankResults {
  AttentionForward forward;
  AttentionGradients gradients;
};

struct RankOptions {
  // Gives each rank its backend; none: the problem's own.
  // NOLINTNEXTLINE(readability-redundant-member-init): as AttentionGradientSums::turn
  std::function<AttentionBackend&(int rank)> backend_of = {};
  int backwards = 1;     // with the problem's own backend, one after the other: the gradients are the last one's
  bool windows = false;  // of the communicators
};

// What each rank gets, forward and backward.
std::vector<RankResults> run_on_ranks(const AttentionProblem& problem, const WholeInputs& inputs, int ranks,
                                      const RankOptions& options = {});

// Holds every rank's results against the dense ones with at::allclose (rtol = atol = tolerance), with -inf and zero
// rows exactly where expected. Says what differs; empty if nothing does.
std::vector<std::string> differences(const AttentionProblem& problem, const WholeResults& expected,
                                     const std::vector<RankResults>& actual, double tolerance);

}  // namespace cp_pool::test
