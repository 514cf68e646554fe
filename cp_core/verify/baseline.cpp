#include "cp_core/verify/baseline.h"

#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/maximum.h>

#include "cp_core/verify/query_blocks.h"

namespace cp_pool::verify {
namespace {

class Baseline {
 public:
  Baseline(const CanonicalProblem& problem, const CanonicalInputs& inputs)
      : problem_(problem),
        dtype_(scalar_type_of(problem.dtype)),
        q_(inputs.q.to(at::kFloat)),
        k_(inputs.k.to(at::kFloat)),
        v_(inputs.v.to(at::kFloat)),
        held_(inputs.held),
        sink_(inputs.sink),
        results_(empty_results(problem, inputs.q.options().dtype(at::kFloat))) {
    if (problem.training) dout_ = inputs.dout.to(at::kFloat);
    if (problem.bias) bias_ = inputs.bias.to(at::kFloat);
    if (sink_.defined()) results_.lse.copy_(sink_.view({1, problem.heads, 1}).expand_as(results_.lse));
  }

  Results compute(const SumShares& sum_shares) {
    for_each_query_block(problem_, q_.device(), [this](const QueryBlock& block) { add(block); });
    if (sum_shares && problem_.has_shared_dbias()) sum_shares(results_.dbias);
    for (const auto member : {&Results::dk, &Results::dv, &Results::dbias}) {
      if ((results_.*member).defined()) results_.*member = rounded(results_.*member);
    }
    return std::move(results_);
  }

 private:
  [[nodiscard]] at::Tensor rounded(const at::Tensor& values) const {
    return dtype_ == at::kFloat ? values : values.to(dtype_).to(at::kFloat);
  }

  // 16 bits would leave nothing of the scores beside their offset, and nothing of the bounds.
  [[nodiscard]] at::Tensor rounded_scores(const at::Tensor& scores) const {
    return problem_.has_offset() ? scores : rounded(scores);
  }

  [[nodiscard]] at::Tensor product(const at::Tensor& a, const at::Tensor& b) const { return rounded(at::bmm(a, b)); }

  void put(const QueryBlock& block, at::Tensor& result, const at::Tensor& grouped) {
    result.narrow(0, block.q_start, block.rows).copy_(by_token(problem_, block, grouped));
  }

  void finish_scores(const QueryBlock& block, at::Tensor& scores) const {
    if (bias_.defined()) {
      by_head(problem_, block, scores).add_(bias_rows(problem_, block, bias_));
      scores = rounded_scores(scores);
    }
    hide_invisible_keys(problem_, block, held_, scores);
  }

  // Computes lse and max_logit, from fp32 scores whatever the dtype.
  void add_lse(const QueryBlock& block, const at::Tensor& raw_scores) {
    at::Tensor scores = raw_scores.mul(problem_.scale());
    if (problem_.softcap != 0) scores.div_(problem_.softcap).tanh_().mul_(problem_.softcap);
    if (bias_.defined()) by_head(problem_, block, scores).add_(bias_rows(problem_, block, bias_));
    hide_invisible_keys(problem_, block, held_, scores);
    const at::Tensor largest = by_head(problem_, block, scores.amax(-1, /*keepdim=*/true)).amax(1);
    at::maximum_out(results_.max_logit, results_.max_logit, largest.view({1, problem_.heads, 1}));
    at::Tensor lse = scores.logsumexp({-1}, /*keepdim=*/true);
    if (sink_.defined()) lse = at::logaddexp(lse, per_head(problem_, block, sink_));
    put(block, results_.lse, lse);
  }

  struct Probabilities {
    at::Tensor p;     // [kv_heads, group * rows, seqlen_kv], with one more column for the sink if there is one
    at::Tensor tanh;  // of the scores divided by the softcap; undefined without one
  };

  [[nodiscard]] Probabilities probabilities(const QueryBlock& block, const at::Tensor& raw_scores) const {
    at::Tensor scores = rounded_scores(rounded_scores(raw_scores).mul(problem_.scale()));
    at::Tensor tanh;
    if (problem_.softcap != 0) {
      tanh = rounded(rounded(scores.div(problem_.softcap)).tanh());
      scores = rounded(tanh.mul(problem_.softcap));
    }
    finish_scores(block, scores);
    if (sink_.defined()) scores = at::cat({scores, rounded(per_head(problem_, block, sink_))}, -1);
    // A softmax over no key is 0 / 0.
    return {.p = rounded(scores.softmax(-1).nan_to_num_(0.0)), .tanh = tanh};
  }

  void add(const QueryBlock& block) {
    const at::Tensor q = query_rows(problem_, block, q_);
    const at::Tensor k = key_rows(block, k_);
    const at::Tensor v = key_rows(block, v_);
    const at::Tensor raw_scores = at::bmm(q, k.transpose(1, 2));
    add_lse(block, raw_scores);
    const auto [all, tanh] = probabilities(block, raw_scores);
    const at::Tensor p = all.narrow(-1, 0, block.seqlen_kv);
    put(block, results_.out, product(p, v));
    if (!problem_.training) return;

    const at::Tensor dout = query_rows(problem_, block, dout_);
    const at::Tensor weighted = product(dout, v.transpose(1, 2)).mul_(p);
    const at::Tensor delta = weighted.sum(-1, /*keepdim=*/true);
    at::Tensor ds = rounded(weighted.sub(p.mul(delta)));
    if (problem_.has_dbias()) add_bias_rows(problem_, block, results_.dbias, ds);
    if (problem_.has_dsink()) {
      const at::Tensor of_rows = rounded(all.narrow(-1, block.seqlen_kv, 1).mul(delta).neg_());
      results_.dsink.add_(by_head(problem_, block, of_rows).sum(1).view({1, problem_.heads, 1}));
    }
    if (tanh.defined()) ds = rounded(ds.mul_(tanh.square().neg_().add_(1.0)));
    ds = rounded(ds.mul_(problem_.scale()));
    put(block, results_.dq, product(ds, k));
    // dk and dv are rounded only after the last block, since an eager implementation has a single block.
    add_key_rows(block, results_.dk, at::bmm(ds.transpose(1, 2), q));
    add_key_rows(block, results_.dv, at::bmm(p.transpose(1, 2), dout));
  }

  const CanonicalProblem& problem_;
  at::ScalarType dtype_;
  at::Tensor q_, k_, v_, held_, dout_, bias_, sink_;
  Results results_;
};

}  // namespace

Results compute_baseline(const CanonicalProblem& problem, const CanonicalInputs& inputs, const SumShares& sum_shares) {
  return Baseline(problem, inputs).compute(sum_shares);
}

}  // namespace cp_pool::verify
