#include "cp_core/verify/baseline.h"

#include <cmath>

#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/maximum.h>

#include "cp_core/verify/query_blocks.h"

namespace cp_pool::verify {
namespace {

// Rounds to FP8 and back. scaled: by a power of two, so that the largest magnitude is in the upper half of the range of
// the type; other scales of an implementation round as well as this one.
at::Tensor in_fp8(const at::Tensor& values, at::ScalarType type, bool scaled) {
  const double largest = type == at::kFloat8_e4m3fn ? kLargestE4m3 : kLargestE5m2;
  const auto most = scaled && values.numel() > 0 ? values.abs().max().item<double>() : 0.0;
  const double scale = most > 0 ? std::exp2(std::floor(std::log2(largest / most))) : 1.0;
  return values.mul(scale).clamp_(-largest, largest).to(type).to(at::kFloat).div_(scale);
}

// What the products of a direction take.
struct Operands {
  at::Tensor q, k, v, dout;
};

class Baseline {
 public:
  Baseline(const CanonicalProblem& problem, const CanonicalInputs& inputs)
      : problem_(problem),
        dtype_(scalar_type_of(problem.dtype)),
        forward_{inputs.q.to(at::kFloat), inputs.k.to(at::kFloat), inputs.v.to(at::kFloat), {}},
        held_(inputs.held),
        sink_(inputs.sink),
        results_(empty_results(problem, inputs.q.options().dtype(at::kFloat))) {
    if (problem.training) forward_.dout = inputs.dout.to(at::kFloat);
    backward_ = forward_;
    if (problem.fp8) {
      for (at::Tensor* const one : {&forward_.q, &forward_.k, &forward_.v}) *one = quantized(*one, at::kFloat8_e4m3fn);
      if (problem.fp8->backward && problem.training) {
        backward_ = forward_;
        backward_.dout = quantized(forward_.dout, at::kFloat8_e5m2);
      }
    }
    if (problem.bias) bias_ = inputs.bias.to(at::kFloat);
    if (sink_.defined()) results_.lse.copy_(sink_.view({1, problem.heads, 1}).expand_as(results_.lse));
  }

  Results compute(const SumShares& sum_shares) {
    for_each_query_block(problem_, forward_.q.device(), [this](const QueryBlock& block) { add(block); });
    if (sum_shares && problem_.has_shared_dbias()) sum_shares(results_.dbias);
    for (const auto member : {&Results::dk, &Results::dv, &Results::dbias}) {
      if ((results_.*member).defined()) results_.*member = rounded(results_.*member);
    }
    if (problem_.has_fp8_output()) {
      const bool gradients = problem_.training && problem_.fp8->backward;
      results_.out = quantized(results_.out, at::kFloat8_e4m3fn);
      for (const auto member : {&Results::dq, &Results::dk, &Results::dv}) {
        if (gradients) results_.*member = quantized(results_.*member, at::kFloat8_e5m2);
      }
    }
    return std::move(results_);
  }

 private:
  [[nodiscard]] at::Tensor rounded(const at::Tensor& values) const {
    return dtype_ == at::kFloat ? values : values.to(dtype_).to(at::kFloat);
  }

  // Rounds to FP8 as the case says. Delayed scaling has scales of 1.
  [[nodiscard]] at::Tensor quantized(const at::Tensor& values, at::ScalarType type) const {
    return in_fp8(values, type, problem_.fp8->scaling == Fp8Scaling::current);
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

  // Returns scores that stay in fp32, -inf where the key is not visible.
  [[nodiscard]] at::Tensor scores_in_fp32(const QueryBlock& block, const at::Tensor& raw_scores) const {
    at::Tensor scores = raw_scores.mul(problem_.scale());
    if (problem_.softcap != 0) scores.div_(problem_.softcap).tanh_().mul_(problem_.softcap);
    if (bias_.defined()) by_head(problem_, block, scores).add_(bias_rows(problem_, block, bias_));
    hide_invisible_keys(problem_, block, held_, scores);
    return scores;
  }

  // Computes lse and max_logit, from fp32 scores whatever the dtype. Returns the lse.
  at::Tensor add_lse(const QueryBlock& block, const at::Tensor& scores) {
    const at::Tensor largest = by_head(problem_, block, scores.amax(-1, /*keepdim=*/true)).amax(1);
    at::maximum_out(results_.max_logit, results_.max_logit, largest.view({1, problem_.heads, 1}));
    at::Tensor lse = scores.logsumexp({-1}, /*keepdim=*/true);
    if (sink_.defined()) lse = at::logaddexp(lse, per_head(problem_, block, sink_));
    put(block, results_.lse, lse);
    return lse;
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
    const at::Tensor q = query_rows(problem_, block, forward_.q);
    const at::Tensor k = key_rows(block, forward_.k);
    const at::Tensor v = key_rows(block, forward_.v);
    const at::Tensor raw_scores = at::bmm(q, k.transpose(1, 2));
    if (problem_.fp8) return add_in_fp8(block, raw_scores);
    add_lse(block, scores_in_fp32(block, raw_scores));
    const auto [all, tanh] = probabilities(block, raw_scores);
    const at::Tensor p = all.narrow(-1, 0, block.seqlen_kv);
    put(block, results_.out, product(p, v));
    if (!problem_.training) return;

    const at::Tensor dout = query_rows(problem_, block, forward_.dout);
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

  // As a kernel in FP8: only operands of products are rounded. The largest p of a row is 1 when the forward rounds it,
  // and the row is divided by its sum later; the backward rounds p itself, which underflows in long rows if its scale
  // is 1. Scales of current scaling fit the largest magnitude, so that nothing underflows by their choice.
  void add_in_fp8(const QueryBlock& block, at::Tensor raw_scores) {
    const at::Tensor scores = scores_in_fp32(block, raw_scores);
    const at::Tensor lse = add_lse(block, scores);
    const auto softmax = [&lse](const at::Tensor& of) { return of.sub(lse).exp_().nan_to_num_(0.0); };
    at::Tensor p = softmax(scores);
    const at::Tensor most = p.amax(-1, /*keepdim=*/true).clamp_min_(1e-30);
    const at::Tensor out =
        rounded(at::bmm(quantized(p.div(most), at::kFloat8_e4m3fn).mul_(most), key_rows(block, forward_.v)));
    put(block, results_.out, out);
    if (!problem_.training) return;

    const at::Tensor q = query_rows(problem_, block, backward_.q);
    const at::Tensor k = key_rows(block, backward_.k);
    const at::Tensor dout = query_rows(problem_, block, backward_.dout);
    const auto of_backward = [this](const at::Tensor& values, at::ScalarType type) {
      return problem_.fp8->backward ? quantized(values, type) : rounded(values);
    };
    if (!problem_.fp8->backward) {
      raw_scores = at::bmm(q, k.transpose(1, 2));
      p = softmax(scores_in_fp32(block, raw_scores));
    }
    add_key_rows(block, results_.dv, at::bmm(of_backward(p, at::kFloat8_e4m3fn).transpose(1, 2), dout));
    const at::Tensor delta = dout.mul(out).sum(-1, /*keepdim=*/true);
    at::Tensor ds = at::bmm(dout, key_rows(block, backward_.v).transpose(1, 2)).sub_(delta).mul_(p);
    if (problem_.has_dbias()) add_bias_rows(problem_, block, results_.dbias, ds);
    if (problem_.has_dsink()) {
      const at::Tensor of_rows = per_head(problem_, block, sink_).sub(lse).exp_().mul_(delta).neg_();
      results_.dsink.add_(by_head(problem_, block, of_rows).sum(1).view({1, problem_.heads, 1}));
    }
    if (problem_.softcap != 0) {
      const at::Tensor tanh = raw_scores.mul(problem_.scale() / problem_.softcap).tanh_();
      ds.mul_(tanh.square_().neg_().add_(1.0));
    }
    ds = of_backward(ds, at::kFloat8_e5m2).mul_(problem_.scale());
    put(block, results_.dq, product(ds, k));
    add_key_rows(block, results_.dk, at::bmm(ds.transpose(1, 2), q));
  }

  const CanonicalProblem& problem_;
  at::ScalarType dtype_;
  Operands forward_, backward_;
  at::Tensor held_, bias_, sink_;
  Results results_;
};

}  // namespace

Results compute_baseline(const CanonicalProblem& problem, const CanonicalInputs& inputs, const SumShares& sum_shares) {
  return Baseline(problem, inputs).compute(sum_shares);
}

}  // namespace cp_pool::verify
