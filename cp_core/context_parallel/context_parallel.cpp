#include "cp_core/context_parallel/context_parallel.h"

#include <initializer_list>
#include <map>
#include <mutex>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "cases/backend_facts.h"
#include "cp_core/attention/cuda_backends.h"
#include "cp_core/attention/math/math_backend.h"
#include "cp_core/context_parallel/comm_steps.h"
#include "cp_core/context_parallel/core.h"
#include "cp_core/cuda/cuda_part.h"
#include "cp_core/layout.h"
#include "cp_core/mutation.h"
#include "cp_core/thd/merge_partial.h"

namespace cp_pool {
namespace {

#ifdef CP_POOL_MUTANTS
SequenceLengths rounded_down(SequenceLengths lengths, int ranks) {
  for (auto* const valid : {&lengths.valid_q, &lengths.valid_kv}) {
    for (std::int64_t& length : *valid) length = length / ranks * ranks;
  }
  return lengths;
}

// Replaces the results that a mutant keeps by those of this rank's last call with the same shape and dtype.
void keep_results(int rank, std::initializer_list<std::pair<Mutant, at::Tensor*>> results) {
  using Key = std::tuple<Mutant, int, std::vector<std::int64_t>, at::ScalarType>;
  static std::mutex mutex;
  static auto& kept = *new std::map<Key, at::Tensor>;  // never destroyed: CUDA ends before static objects do
  const std::lock_guard lock(mutex);
  for (const auto& [mutant, result] : results) {
    if (!mutant_is_on(mutant) || !result->defined()) continue;
    at::Tensor& last = kept[{mutant, rank, result->sizes().vec(), result->scalar_type()}];
    at::Tensor given = last.defined() ? last : result->clone();
    last = std::exchange(*result, std::move(given));
  }
}
#endif

// In thd every rank has the whole bias and gets the whole gradient, since the sequences that share a row of the bias
// have that position on different ranks.
at::Tensor finish_dbias(const Context& context, const at::Tensor& bias, at::Tensor dbias) {
  if (!dbias.defined()) return {};
  if (context.problem.layout == Layout::thd && CP_MUTATE(thd_dbias_not_reduced, true, false)) {
    context.groups.cp->all_reduce(dbias, ReduceOp::sum, "dbias")->wait();
  }
  return dbias.to(bias.scalar_type());
}

// Computes the gradient of the sink from this rank's own rows, for which every communication type returns out and lse
// of all heads, and sums it over ranks.
at::Tensor reduce_dsink(const Context& context, const at::Tensor& sink, const AttentionBackwardOperands& backward) {
  if (context.problem.softmax != SoftmaxType::learnable) return {};
  Communicator& cp = *context.groups.cp;
  const SequenceLengths& lengths = context.problem.lengths;
  const std::vector<RowRange> rows = valid_rows(local_runs(lengths.padded_q, cp.size(), cp.rank()), lengths.valid_q);
  at::Tensor dsink = sink_gradient(sink, backward.lse, backward.delta, rows);
  if (CP_MUTATE(dsink_zero, false, true)) dsink.zero_();
  if (CP_MUTATE(dsink_misses_last_rank, false, cp.rank() == cp.size() - 1)) dsink.zero_();
  if (CP_MUTATE(dsink_not_reduced, true, false)) cp.all_reduce(dsink, ReduceOp::sum, "dsink")->wait();
  return dsink;
}

// Whether anything reads delta: the math backend, which does not compute delta from out and also takes over tiles with
// a bias, or the gradient of the sink.
bool needs_delta(const Context& context) {
  return !context.backend.computes_delta() || context.problem.bias || context.problem.softmax == SoftmaxType::learnable;
}

}  // namespace

std::unique_ptr<AttentionBackend> make_backend(Backend backend, const at::Device& device) {
  if (device.is_cuda()) return cuda_part<CudaBackends>().make(backend);
  TORCH_CHECK(device.is_cpu(), "no ", std::string(to_string(backend)), " backend for ", device);
  // On CPU ranks the math backend stands in for the others. If the backend's kernels round the result of each call, the
  // math backend rounds and returns results call by call, so that CPU ranks run the code for such results, too.
  return std::make_unique<MathBackend>(facts_of(backend).rounds_calls ? MathBackend::Results::calls
                                                                      : MathBackend::Results::sums);
}

AttentionProblem make_problem(const Case& c, const SequenceLengths& lengths) {
  return {c, CP_MUTATE(lengths_rounded_down, lengths, rounded_down(lengths, c.cp_size))};
}

AttentionForward context_parallel_forward(const AttentionProblem& problem, const CpGroups& groups,
                                          const AttentionInputs& inputs, AttentionBackend* backend) {
  const auto own = backend == nullptr ? make_backend(problem.backend, inputs.q.device()) : nullptr;
  const Context context{.problem = problem, .groups = groups, .backend = backend == nullptr ? *own : *backend};
  PackedForward forward = steps_of(problem, groups.cp->size()).forward(context, pack_inputs(problem, inputs));
  const auto batch = static_cast<std::int64_t>(problem.lengths.padded_q.size());
  AttentionForward results{.out = from_packed(forward.out, problem.layout, batch),
                           .lse = forward.lse,
                           .max_logit = forward.max_logit,
                           .saved = std::move(forward.saved),
                           .remarks = context.backend.remarks()};
#ifdef CP_POOL_MUTANTS
  if (mutant_is_on(Mutant::last_head_inexact)) results.out.select(-2, results.out.size(-2) - 1).mul_(1 + 0x1p-15);
  keep_results(groups.cp->rank(), {{Mutant::kept_out, &results.out},
                                   {Mutant::kept_lse, &results.lse},
                                   {Mutant::kept_max_logit, &results.max_logit}});
#endif
  return results;
}

AttentionGradients context_parallel_backward(const AttentionProblem& problem, const CpGroups& groups,
                                             const AttentionInputs& inputs, const AttentionForward& forward,
                                             const at::Tensor& dout, AttentionBackend* backend) {
  if (!forward.saved) throw std::invalid_argument("the backward needs the result of this rank's forward");
  const auto own_backend = backend == nullptr ? make_backend(problem.backend, inputs.q.device()) : nullptr;
  const Context context{.problem = problem, .groups = groups, .backend = backend == nullptr ? *own_backend : *backend};
  const PackedInputs packed = pack_inputs(problem, inputs);
  AttentionBackwardOperands own{.dout = to_packed(dout, problem.layout),
                                .lse = forward.lse,
                                .delta = {},
                                .out = to_packed(forward.out, problem.layout)};
  if (needs_delta(context)) own.delta = row_delta(own.out, own.dout);
  const PackedGradients gradients = steps_of(problem, groups.cp->size()).backward(context, packed, own, *forward.saved);
  const auto batch = static_cast<std::int64_t>(problem.lengths.padded_q.size());
  AttentionGradients results{.dq = from_packed(gradients.dq, problem.layout, batch),
                             .dk = from_packed(gradients.dk, problem.layout, batch),
                             .dv = from_packed(gradients.dv, problem.layout, batch),
                             .dbias = finish_dbias(context, inputs.bias, gradients.dbias),
                             .dsink = reduce_dsink(context, packed.sink, own),
                             .remarks = context.backend.remarks()};
#ifdef CP_POOL_MUTANTS
  const bool has_padding = problem.layout == Layout::thd;  // which has to stay 0
  if (mutant_is_on(Mutant::fp16_dq_in_bf16) && results.dq.scalar_type() == at::kHalf) {
    results.dq.copy_(results.dq.to(at::kBFloat16));
  }
  if (mutant_is_on(Mutant::unseen_key_gradient) && !has_padding) results.dk.masked_fill_(results.dk.eq(0), 1e-30);
  keep_results(groups.cp->rank(), {{Mutant::kept_dq, &results.dq},
                                   {Mutant::kept_dk, &results.dk},
                                   {Mutant::kept_dv, &results.dv},
                                   {Mutant::kept_dbias, &results.dbias},
                                   {Mutant::kept_dsink, &results.dsink}});
#endif
  return results;
}

}  // namespace cp_pool
