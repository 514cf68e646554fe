#include "cp_core/context_parallel/core.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>

#include "cases/mask.h"
#include "cp_core/layout.h"
#include "cp_core/mutation.h"
#include "cp_core/thd/merge_partial.h"

namespace cp_pool {

double scale_of(const AttentionProblem& problem) {
  return 1.0 / std::sqrt(static_cast<double>(CP_MUTATE(mla_scale, problem.head_dim_qk, problem.head_dim_v)));
}

PackedInputs pack_inputs(const AttentionProblem& problem, const AttentionInputs& inputs) {
  PackedInputs packed;
  packed.operands = {.q = to_packed(inputs.q, problem.layout),
                     .k = to_packed(inputs.k, problem.layout),
                     .v = to_packed(inputs.v, problem.layout),
                     .bias = inputs.bias,
                     .bias_rows = problem.layout == Layout::thd ? BiasRows::position : BiasRows::local,
                     .scale = scale_of(problem),
                     .softcap = problem.softcap};
  if (problem.softmax == SoftmaxType::learnable) packed.sink = inputs.sink;
  if (problem.softmax == SoftmaxType::off_by_one) {
    packed.sink = at::zeros({problem.heads}, inputs.q.options().dtype(at::kFloat));
    if (CP_MUTATE(off_by_one_logit, false, true)) packed.sink.fill_(1.0);
  }
  return packed;
}

#ifdef CP_POOL_MUTANTS
static bool have_padding(const std::vector<Run>& runs, const std::vector<std::int64_t>& valid) {
  return std::ranges::any_of(
      runs, [&valid](const Run& run) { return run.end > valid[static_cast<std::size_t>(run.sequence)]; });
}

// Makes the last rows NaN if the last run is all padding.
static void poison_padding_chunk(at::Tensor& out, const std::vector<Run>& runs,
                                 const std::vector<std::int64_t>& valid) {
  if (runs.empty() || runs.back().begin < valid[static_cast<std::size_t>(runs.back().sequence)]) return;
  out.narrow(0, runs.back().row, runs.back().size()).fill_(std::numeric_limits<double>::quiet_NaN());
}

static bool is_odd_call() {
  thread_local bool second = true;
  second = !second;
  return second;
}
#endif

TilePlan make_plan(const AttentionProblem& problem, const std::vector<Run>& q_runs, const std::vector<Run>& k_runs) {
  const ValidLengths lengths{.q = problem.lengths.valid_q, .kv = problem.lengths.valid_kv};
  const std::vector<Tile> tiles = make_tiles(q_runs, k_runs, lengths, make_mask(problem));
  return group_tiles(problem.bias ? tiles : merge_tiles(tiles));
}

at::Tensor make_inbox(const at::Tensor& like, std::int64_t rows, at::ScalarType dtype) {
  at::Tensor inbox = at::empty({rows, like.size(1), like.size(2)}, like.options().dtype(dtype));
#ifdef CP_POOL_MUTANTS
  // Reused memory may hold the right numbers from an earlier case, which would hide a skipped wait.
  inbox.zero_();
#endif
  return inbox;
}

PeerWindows::Put put_rows(const at::Tensor& source, const RowCopy& rows, int peer, std::size_t window) {
  const auto row_bytes = static_cast<std::int64_t>(source.element_size()) * source.size(1) * source.size(2);
  const std::int64_t width = rows.count * row_bytes;
  return {.peer = peer,
          .window = window,
          .first = rows.target * row_bytes,
          .block = {.source = static_cast<const std::byte*>(source.const_data_ptr()) + rows.source * row_bytes,
                    .rows = 1,
                    .width = width,
                    .source_stride = width,
                    .target_stride = width}};
}

at::Tensor narrowed(const at::Tensor& tensor, std::int64_t dim, HeadGroup group) {
  const std::int64_t heads = tensor.size(dim) / group.count;
  return tensor.narrow(dim, group.index * heads, heads);
}

AttentionOperands narrowed(const AttentionOperands& operands, HeadGroup group) {
  AttentionOperands some = operands;
  some.q = narrowed(operands.q, 1, group);
  some.k = narrowed(operands.k, 1, group);
  some.v = narrowed(operands.v, 1, group);
  return some;
}

AttentionBackwardOperands narrowed(const AttentionBackwardOperands& backward, HeadGroup group) {
  const auto if_defined = [&group](const at::Tensor& tensor, std::int64_t dim) {
    return tensor.defined() ? narrowed(tensor, dim, group) : at::Tensor();
  };
  return {.dout = narrowed(backward.dout, 1, group),
          .lse = narrowed(backward.lse, 0, group),
          .delta = if_defined(backward.delta, 0),
          .out = if_defined(backward.out, 1)};
}

bool has_dbias(const AttentionProblem& problem) {
  return problem.bias && problem.bias != BiasShape::shape_111s;
}

PackedForward finish_forward(const AttentionProblem& problem, const std::vector<Run>& q_runs, const at::Tensor& sink,
                             at::ScalarType dtype, AttentionSums sums) {
  const SequenceLengths& lengths = problem.lengths;
  if (CP_MUTATE(sink_dropped, sink.defined(), false)) {
    sums.out = sums.out.to(at::kFloat);
    const std::vector<RowRange> rows =
        valid_rows(q_runs, CP_MUTATE(sink_joins_padding, lengths.valid_q, lengths.padded_q));
    merge_sink(sums.out, sums.lse, sink, rows);
    if (CP_MUTATE(sink_merged_twice, false, true)) merge_sink(sums.out, sums.lse, sink, rows);
    if (sums.max_logit.defined() && CP_MUTATE(max_logit_of_sink, false, true)) {
      sums.max_logit = at::maximum(sums.max_logit, sink);
    }
  }
  if (sums.max_logit.defined() && CP_MUTATE(max_logit_over_padding, false, have_padding(q_runs, lengths.valid_q))) {
    sums.max_logit.clamp_min_(0.0);
  }
#ifdef CP_POOL_MUTANTS
  if (mutant_is_on(Mutant::padding_chunk_nan)) poison_padding_chunk(sums.out, q_runs, lengths.valid_q);
#endif
  if (CP_MUTATE(empty_lse_plus_infinity, false, true)) {
    sums.lse.masked_fill_(sums.lse.isinf(), std::numeric_limits<double>::infinity());
  }
  if (CP_MUTATE(repeat_drifts, false, is_odd_call())) sums.lse.mul_(1.0 + 0x1p-22);
  return {.out = sums.out.to(dtype), .lse = std::move(sums.lse), .max_logit = std::move(sums.max_logit)};
}

PackedGradients finish_backward(const AttentionOperands& operands, const PackedGradients& gradients) {
  const at::ScalarType dtype = operands.q.scalar_type();
  if (CP_MUTATE(repeat_drifts_backward, false, is_odd_call())) gradients.dq.mul_(1.0 + 0x1p-22);
  return {.dq = gradients.dq.to(dtype),
          .dk = gradients.dk.to(dtype),
          .dv = gradients.dv.to(dtype),
          .dbias = gradients.dbias};
}

}  // namespace cp_pool
