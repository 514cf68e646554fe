#include <limits>
#include <stdexcept>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "cp_core/builtin/builtin_implementation.h"
#include "cp_core/builtin/whole_sequences.h"
#include "cp_core/context_parallel/core.h"
#include "cp_core/layout.h"
#include "cp_core/mutation.h"
#include "cp_core/thd/merge_partial.h"

namespace cp_pool {
namespace {

#ifdef CP_POOL_MUTANTS
std::vector<Run> from_zero(std::vector<Run> runs) {
  for (Run& run : runs) run = {.sequence = run.sequence, .begin = 0, .end = run.size(), .row = run.row};
  return runs;
}
#endif

// problem: of whole sequences, in thd. layout: of the shards.
PackedInputs packed(AttentionProblem problem, Layout layout, const verify::Shards& shards) {
  problem.layout = layout;
  return pack_inputs(problem, attention_inputs(shards));
}

class PartsStep final : public Step {
 public:
  PartsStep(const StepSetting& setting, const verify::Shards& shards)
      : case_(setting.c),
        problem_(whole_sequences_problem(setting.c, setting.lengths)),
        cp_(*setting.groups.cp),
        inputs_(packed(problem_, setting.c.layout, shards)),
        queries_(whole_runs(setting.lengths.valid_q)),
        keys_(local_runs(setting.lengths.padded_kv, cp_.size(), cp_.rank())) {}

  void forward(verify::Results& results) override {
    const at::NoGradGuard no_grad;
    AttentionSums part = own_part();
    results.part_lse = part.lse.clone();
    AttentionSums sums = merged(part);
    if (sums.max_logit.defined()) cp_.all_reduce(sums.max_logit, ReduceOp::max, "parts: max_logit")->wait();
    const PackedForward forward =
        finish_forward(problem_, queries_, inputs_.sink, inputs_.operands.q.scalar_type(), sums);
    results.out = from_packed(forward.out, case_.layout, case_.batch);
    results.lse = forward.lse;
    results.max_logit = forward.max_logit;
  }

  void backward(verify::Results& /*results*/) override { throw std::logic_error("parts are merged in forwards only"); }

 private:
  AttentionSums own_part() const {
    const AttentionOperands& operands = inputs_.operands;
    const auto backend = make_backend(problem_.backend, operands.q.device());
    AttentionSums part = make_empty_sums(operands, case_.max_logit);
    attend(*backend, make_plan(problem_, queries_, CP_MUTATE(part_keys_from_zero, keys_, from_zero(keys_))), operands,
           part);
    fill_if_empty(part);
    widen(part);
    return part;
  }

  AttentionSums merged(const AttentionSums& part) const {
    const at::Tensor out = gathered(cp_, part.out, "parts: out");
    const at::Tensor lse = gathered(cp_, part.lse, "parts: lse");
    if (CP_MUTATE(part_empty_lse_zero, false, true)) lse.masked_fill_(lse.isinf(), 0.0);
    const std::int64_t rows = part.out.size(0);
    const std::vector<RowCopy> all{{.source = 0, .target = 0, .count = rows}};
    AttentionSums sums{{.out = out.narrow(0, 0, rows).clone(),
                        .lse = lse.narrow(0, 0, case_.heads).clone(),
                        .max_logit = part.max_logit}};
    for (int rank = 1; rank < CP_MUTATE(part_of_last_rank_lost, cp_.size(), cp_.size() - 1); ++rank) {
      merge_partial(sums.out, sums.lse, out.narrow(0, rank * rows, rows),
                    lse.narrow(0, rank * case_.heads, case_.heads), all);
    }
    return sums;
  }

  const Case& case_;
  AttentionProblem problem_;
  Communicator& cp_;
  PackedInputs inputs_;
  std::vector<Run> queries_;
  std::vector<Run> keys_;
};

}  // namespace

std::unique_ptr<Step> make_parts_step(const StepSetting& setting, const verify::Shards& shards) {
  return std::make_unique<PartsStep>(setting, shards);
}

}  // namespace cp_pool
