#include "cp_core/diagnosis/testing/simulated_attention.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "cp_core/diagnosis/simulated_step.h"

namespace cp_pool::diagnosis::test {
namespace {

using verify::Results;

class HypothesisStep final : public Step {
 public:
  HypothesisStep(const StepSetting& setting, const verify::Shards& shards, const verify::Sharding& sharding,
                 const std::vector<std::string>& failing, int hypothesis, const Attempt& attempt)
      : setting_(setting), rank_(setting.groups.cp->rank()) {
    const at::NoGradGuard no_grad;
    of_ = unanswered(setting.c, setting.lengths, sharding, setting.groups.cp->size());
    gather(shards);
    dense_.emplace(of_);
    const Hypotheses all = all_hypotheses(*dense_, {.failing = failing});
    whole_ = simulated(*dense_, hypothesis < 0 ? nullptr : &all.at(static_cast<std::size_t>(hypothesis)), attempt);
  }

  void forward(Results& results) override {
    results.out = in_layout(rows(dense_->q_rows, whole_.out));
    results.lse = rows(dense_->q_rows, whole_.lse).squeeze(-1).t().contiguous().to(at::kFloat);
    if (whole_.max_logit.defined()) results.max_logit = whole_.max_logit[rank_].flatten().to(at::kFloat);
  }

  void backward(Results& results) override {
    results.dq = in_layout(rows(dense_->q_rows, whole_.dq));
    results.dk = in_layout(rows(dense_->kv_rows, whole_.dk));
    results.dv = in_layout(rows(dense_->kv_rows, whole_.dv));
    if (whole_.dsink.defined()) results.dsink = whole_.dsink[rank_].flatten().to(at::kFloat);
    if (whole_.dbias.defined()) results.dbias = dbias();
  }

 private:
  // Takes the rows that the ranks were given for the inputs of the case. Padding, the bias and the sink stay those of
  // the case's seed.
  void gather(const verify::Shards& shards) {
    const verify::RankView& view = setting_.view;
    gather(view.q, shards.q, of_.inputs.q);
    gather(view.kv, shards.k, of_.inputs.k);
    gather(view.kv, shards.v, of_.inputs.v);
    if (shards.dout.defined()) gather(view.q, shards.dout, of_.inputs.dout);
  }

  void gather(const verify::RankRows& rows, const at::Tensor& shard, at::Tensor& canonical) const {
    canonical = at::zeros(canonical.sizes(), at::kDouble);
    const at::Tensor packed = rows.packed(shard).to(at::kDouble);
    for (std::size_t i = 0; i < rows.rows().size(); ++i) {
      const std::int64_t place = rows.rows()[i].canonical;
      if (place >= 0) canonical[place].copy_(packed[static_cast<std::int64_t>(i)]);
    }
    setting_.groups.cp->all_reduce(canonical, ReduceOp::sum, "inputs")->wait();
  }

  static at::Tensor rows(const Side& side, int rank, const at::Tensor& whole) {
    const auto r = static_cast<std::size_t>(rank);
    return whole.narrow(0, side.first[r], side.first[r + 1] - side.first[r]);
  }
  [[nodiscard]] at::Tensor rows(const Side& side, const at::Tensor& whole) const { return rows(side, rank_, whole); }

  [[nodiscard]] at::Tensor in_layout(const at::Tensor& packed) const {
    const Case& c = setting_.c;
    at::Tensor rounded = packed.to(verify::scalar_type_of(c.dtype)).contiguous();
    if (c.layout == Layout::thd) return rounded;
    const at::Tensor bshd = rounded.view({c.batch, -1, rounded.size(1), rounded.size(2)});
    return c.layout == Layout::bshd ? bshd : bshd.transpose(0, 1).contiguous();
  }

  [[nodiscard]] at::Tensor dbias() const {
    const std::int64_t of_a_rank = whole_.dbias.size(0) / setting_.groups.cp->size();
    const at::Tensor own = whole_.dbias.narrow(0, rank_ * of_a_rank, of_a_rank);
    const std::int64_t columns = dense_->bias.size(3);
    at::Tensor padded = at::zeros({own.size(0), own.size(1), columns}, own.options());
    padded.narrow(2, 0, own.size(2)).copy_(own);
    return padded.view({own.size(0), dense_->bias.size(0), dense_->bias.size(1), columns})
        .permute({1, 2, 0, 3})
        .contiguous()
        .to(verify::scalar_type_of(setting_.c.dtype));
  }

  StepSetting setting_;
  int rank_;
  Observation of_;
  std::optional<DenseProblem> dense_;
  WholeResults whole_;
};

}  // namespace

Observation unanswered(const Case& c, const SequenceLengths& lengths, const verify::Sharding& sharding, int ranks) {
  Observation of{.c = c, .lengths = lengths, .sharding = sharding};
  of.inputs = verify::make_inputs(verify::canonical_problem(c, lengths));
  of.results.resize(static_cast<std::size_t>(ranks));
  return of;
}

WholeResults simulated(const DenseProblem& dense, const Hypothesis* hypothesis, const Attempt& attempt) {
  const SimulatedStep right(dense);
  const SimulatedStep model = hypothesis == nullptr ? right : HypothesisCheck::changed(right, *hypothesis, attempt);
  const Forward forward = run_forward(model);
  WholeResults whole = forward.results;
  if (dense.c().training) sum_by(model, run_backward(model, forward), /*absolute=*/false, whole);
  if (hypothesis != nullptr && hypothesis->results) hypothesis->results(dense, whole);
  return whole;
}

verify::Sharding simulated_sharding() {
  verify::Sharding sharding;
  sharding.padding = verify::PaddingFill::garbage;
  return sharding;
}

std::unique_ptr<Step> SimulatedAttention::make_step(const StepSetting& setting, const verify::Shards& shards) {
  return std::make_unique<HypothesisStep>(setting, shards, sharding(setting.c, setting.lengths), failing_, hypothesis_,
                                          attempt_);
}

}  // namespace cp_pool::diagnosis::test
