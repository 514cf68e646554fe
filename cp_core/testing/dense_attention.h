// Whole attention problems for tests: made from a seed, computed densely in fp64 from the definition, sharded by
// arithmetic that is independent of the code under test, and run on ranks of this process.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cases/mask.h"
#include "cp_core/context_parallel/context_parallel.h"

namespace cp_pool::test {

// Packed tensors of whole sequences, [sum of padded lengths, heads, dim], with NaN in padding.
struct WholeInputs {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
  at::Tensor dout;
  at::Tensor bias;  // [batch or 1, heads or 1, s_q or 1, s_kv], for the largest padded lengths
  at::Tensor sink;
};

// All fp64; padding is 0, and -inf in lse.
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

// Gives the case this mask.
void set_mask(Case& c, const Mask& mask);

WholeInputs make_inputs(const AttentionProblem& problem, at::ScalarType dtype, std::uint64_t seed);
WholeResults dense_attention(const AttentionProblem& problem, const WholeInputs& inputs);

// Returns the rows of a packed whole tensor that a rank holds. dim: the dimension of the rows; padded: the padded
// lengths of the sequences.
at::Tensor shard_rows(const at::Tensor& whole, std::int64_t dim, const std::vector<std::int64_t>& padded, int ranks,
                      int rank);

struct RankResults {
  AttentionForward forward;
  AttentionGradients gradients;
};

struct RankOptions {
  // Returns the backend of each rank; empty: the problem's own.
  // NOLINTNEXTLINE(readability-redundant-member-init): as PackedGradients::dbias
  std::function<AttentionBackend&(int rank)> backend_of = {};
  int backwards = 1;  // how many backwards run, with the problem's own backend; the last one's gradients are returned
  bool windows = false;  // whether the communicators have windows
};

// Runs the problem, forward and backward. Returns the results of each rank.
std::vector<RankResults> run_on_ranks(const AttentionProblem& problem, const WholeInputs& inputs, int ranks,
                                      const RankOptions& options = {});

// Compares every rank's results with the dense ones by at::allclose (rtol = atol = tolerance); -inf and zero rows must
// be exactly where they are expected. Returns a sentence per difference; empty if there is none.
std::vector<std::string> differences(const AttentionProblem& problem, const WholeResults& expected,
                                     const std::vector<RankResults>& actual, double tolerance);

}  // namespace cp_pool::test
