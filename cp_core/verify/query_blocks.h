// The reference and the baseline compute a problem in blocks of queries of one sequence, so that the scores of a block
// fit into memory whatever the sequence length.
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

#include "cp_core/verify/canonical.h"

namespace cp_pool::verify {

struct QueryBlock {
  std::int64_t sequence = 0;
  std::int64_t seqlen_q = 0;
  std::int64_t seqlen_kv = 0;  // > 0
  std::int64_t first_row = 0;  // position in the sequence of the first query
  std::int64_t rows = 0;       // > 0
  std::int64_t q_start = 0;    // canonical row of the first query
  std::int64_t kv_start = 0;   // canonical row of the sequence's first key
};

// Visits every query of every sequence that has keys exactly once; visits nothing if there are no heads. The size of
// the blocks depends on the device.
void for_each_query_block(const CanonicalProblem& problem, const at::Device& device,
                          const std::function<void(const QueryBlock&)>& visit);

// Returns the block's rows of a query-side tensor [tokens_q, heads, dim] as [kv_heads, group * rows, dim]. The query
// heads that share a kv head are adjacent, so one batched product serves them all.
at::Tensor query_rows(const CanonicalProblem& problem, const QueryBlock& block, const at::Tensor& tensor);
// The reverse: converts [kv_heads, group * rows, dim] to [rows, heads, dim].
at::Tensor by_token(const CanonicalProblem& problem, const QueryBlock& block, const at::Tensor& grouped);
// Returns the sequence's rows of a key-side tensor [tokens_kv, kv_heads, dim] as [kv_heads, seqlen_kv, dim].
at::Tensor key_rows(const QueryBlock& block, const at::Tensor& tensor);
// Adds [kv_heads, seqlen_kv, dim] to the sequence's rows of a key-side tensor.
void add_key_rows(const QueryBlock& block, at::Tensor& tensor, const at::Tensor& part);

// Returns a view of the part of a bias (inputs.h) or of its gradient that a block uses: [heads or 1, rows or 1,
// seqlen_kv].
at::Tensor bias_rows(const CanonicalProblem& problem, const QueryBlock& block, const at::Tensor& bias);
// Returns scores [kv_heads, group * rows, seqlen_kv] as a view by query head, [heads, rows, seqlen_kv].
at::Tensor by_head(const CanonicalProblem& problem, const QueryBlock& block, const at::Tensor& scores);
// Expands one value per head to [kv_heads, group * rows, 1], to match the block's scores.
at::Tensor per_head(const CanonicalProblem& problem, const QueryBlock& block, const at::Tensor& values);
// Adds score gradients [kv_heads, group * rows, seqlen_kv] to the gradient of the bias [batch or 1, heads or 1, rows,
// columns].
void add_bias_rows(const CanonicalProblem& problem, const QueryBlock& block, at::Tensor& dbias, const at::Tensor& ds);

// Fills scores [kv_heads, group * rows, seqlen_kv] with -inf where the key is not visible. held: CanonicalInputs::held.
void hide_invisible_keys(const CanonicalProblem& problem, const QueryBlock& block, const at::Tensor& held,
                         at::Tensor& scores);

}  // namespace cp_pool::verify
