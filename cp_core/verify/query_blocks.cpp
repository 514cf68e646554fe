#include "cp_core/verify/query_blocks.h"

#include <algorithm>
#include <limits>

#include "cp_core/no_autograd.h"

namespace cp_pool::verify {
namespace {

// The most scores of one block: 64 MiB in fp64 on a CPU, and 1 GiB on a GPU, where launches must be few.
constexpr std::int64_t kMaxScoresCpu = std::int64_t{1} << 23U;
constexpr std::int64_t kMaxScoresCuda = std::int64_t{1} << 27U;

}  // namespace

void for_each_query_block(const CanonicalProblem& problem, const at::Device& device,
                          const std::function<void(const QueryBlock&)>& visit) {
  if (problem.heads == 0) return;
  const NoAutograd no_autograd;
  const std::int64_t max_scores = device.is_cuda() ? kMaxScoresCuda : kMaxScoresCpu;
  // On a CPU, a share is cut like the whole problem, to give the same bits. On a GPU bits need not agree, and a share
  // uses blocks of full size.
  const bool as_whole = problem.whole_heads > 0 && !device.is_cuda();
  const std::int64_t block_heads = as_whole ? problem.whole_heads : problem.heads;
  QueryBlock block;
  std::int64_t sequence_start = 0;
  for (std::size_t b = 0; b < problem.seqlens_q.size(); ++b) {
    block.sequence = static_cast<std::int64_t>(b);
    block.seqlen_q = problem.seqlens_q[b];
    block.seqlen_kv = problem.seqlens_kv[b];
    if (block.seqlen_kv > 0) {
      const auto most = std::max<std::int64_t>(1, max_scores / (block_heads * block.seqlen_kv));
      for (block.first_row = 0; block.first_row < block.seqlen_q; block.first_row += most) {
        block.rows = std::min(most, block.seqlen_q - block.first_row);
        block.q_start = sequence_start + block.first_row;
        visit(block);
      }
    }
    sequence_start += block.seqlen_q;
    block.kv_start += block.seqlen_kv;
  }
}

at::Tensor query_rows(const CanonicalProblem& problem, const QueryBlock& block, const at::Tensor& tensor) {
  const auto dim = tensor.size(2);
  return tensor.narrow(0, block.q_start, block.rows)
      .transpose(0, 1)
      .reshape({problem.kv_heads, problem.heads / problem.kv_heads * block.rows, dim});
}

at::Tensor by_token(const CanonicalProblem& problem, const QueryBlock& block, const at::Tensor& grouped) {
  return grouped.reshape({problem.heads, block.rows, grouped.size(2)}).transpose(0, 1);
}

at::Tensor key_rows(const QueryBlock& block, const at::Tensor& tensor) {
  return tensor.narrow(0, block.kv_start, block.seqlen_kv).transpose(0, 1);
}

void add_key_rows(const QueryBlock& block, at::Tensor& tensor, const at::Tensor& part) {
  tensor.narrow(0, block.kv_start, block.seqlen_kv).add_(part.transpose(0, 1));
}

at::Tensor bias_rows(const CanonicalProblem& problem, const QueryBlock& block, const at::Tensor& bias) {
  const at::Tensor columns = bias.select(0, bias.size(0) == 1 ? 0 : block.sequence).narrow(2, 0, block.seqlen_kv);
  return problem.bias == BiasShape::shape_111s ? columns : columns.narrow(1, block.first_row, block.rows);
}

at::Tensor by_head(const CanonicalProblem& problem, const QueryBlock& block, const at::Tensor& scores) {
  return scores.view({problem.heads, block.rows, scores.size(2)});
}

at::Tensor per_head(const CanonicalProblem& problem, const QueryBlock& block, const at::Tensor& values) {
  return values.view({problem.heads, 1, 1})
      .expand({problem.heads, block.rows, 1})
      .reshape({problem.kv_heads, problem.heads / problem.kv_heads * block.rows, 1});
}

void add_bias_rows(const CanonicalProblem& problem, const QueryBlock& block, at::Tensor& dbias, const at::Tensor& ds) {
  const at::Tensor heads = by_head(problem, block, ds);
  bias_rows(problem, block, dbias).add_(dbias.size(1) == 1 ? heads.sum(0, /*keepdim=*/true) : heads);
}

void hide_invisible_keys(const CanonicalProblem& problem, const QueryBlock& block, const at::Tensor& held,
                         at::Tensor& scores) {
  at::Tensor hidden =
      visible_keys(problem, block.seqlen_q, block.seqlen_kv, block.first_row, block.rows, scores.device())
          .logical_not_();
  if (held.defined()) hidden.logical_or_(held.narrow(0, block.kv_start, block.seqlen_kv).logical_not());
  const auto group = problem.heads / problem.kv_heads;
  scores.view({problem.kv_heads, group, block.rows, block.seqlen_kv})
      .masked_fill_(hidden, -std::numeric_limits<double>::infinity());
}

}  // namespace cp_pool::verify
