#include "cp_core/verify/baseline.h"

#include <limits>

#include <ATen/ops/bmm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "cp_core/verify/query_blocks.h"

namespace cp_pool::verify {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Baseline {
 public:
  Baseline(const CanonicalProblem& problem, const CanonicalInputs& inputs)
      : problem_(problem),
        dtype_(scalar_type_of(problem.dtype)),
        q_(inputs.q.to(at::kFloat)),
        k_(inputs.k.to(at::kFloat)),
        v_(inputs.v.to(at::kFloat)) {
    const auto zeros_like = [](const at::Tensor& tensor) { return at::zeros(tensor.sizes(), tensor.options()); };
    results_.out = at::zeros({q_.size(0), q_.size(1), v_.size(2)});
    results_.lse = at::full({q_.size(0), q_.size(1), 1}, -kInfinity, at::kFloat);
    if (!problem.training) return;
    dout_ = inputs.dout.to(at::kFloat);
    results_.dq = zeros_like(q_);
    results_.dk = zeros_like(k_);
    results_.dv = zeros_like(v_);
  }

  Results compute() {
    for_each_query_block(problem_, [this](const QueryBlock& block) { add(block); });
    if (problem_.training) {
      results_.dk = rounded(results_.dk);
      results_.dv = rounded(results_.dv);
    }
    return std::move(results_);
  }

 private:
  [[nodiscard]] at::Tensor rounded(const at::Tensor& values) const {
    return dtype_ == at::kFloat ? values : values.to(dtype_).to(at::kFloat);
  }

  [[nodiscard]] at::Tensor product(const at::Tensor& a, const at::Tensor& b) const { return rounded(at::bmm(a, b)); }

  void put(const QueryBlock& block, at::Tensor& result, const at::Tensor& grouped) {
    result.narrow(0, block.q_start, block.rows).copy_(by_token(problem_, block, grouped));
  }

  void add(const QueryBlock& block) {
    const at::Tensor q = query_rows(problem_, block, q_);
    const at::Tensor k = key_rows(block, k_);
    const at::Tensor v = key_rows(block, v_);
    const at::Tensor raw_scores = at::bmm(q, k.transpose(1, 2));
    at::Tensor wide_scores = raw_scores.mul(problem_.scale());
    hide_invisible_keys(problem_, block, wide_scores);
    put(block, results_.lse, wide_scores.logsumexp({-1}, /*keepdim=*/true));

    at::Tensor scores = wide_scores;
    if (dtype_ != at::kFloat) {
      scores = rounded(rounded(raw_scores).mul_(problem_.scale()));
      hide_invisible_keys(problem_, block, scores);
    }
    // A softmax over no key is 0 / 0.
    const at::Tensor p = rounded(scores.softmax(-1).nan_to_num_(0.0));
    const at::Tensor out = product(p, v);
    put(block, results_.out, out);
    if (!problem_.training) return;

    const at::Tensor dout = query_rows(problem_, block, dout_);
    const at::Tensor dp = product(dout, v.transpose(1, 2));
    const at::Tensor weighted = p.mul(dp);
    at::Tensor ds = rounded(weighted.sub(p.mul(weighted.sum(-1, /*keepdim=*/true))));
    ds = rounded(ds.mul_(problem_.scale()));
    put(block, results_.dq, product(ds, k));
    // Rounded when the last block has been added: an eager implementation has one block.
    add_key_rows(block, results_.dk, at::bmm(ds.transpose(1, 2), q));
    add_key_rows(block, results_.dv, at::bmm(p.transpose(1, 2), dout));
  }

  const CanonicalProblem& problem_;
  at::ScalarType dtype_;
  at::Tensor q_, k_, v_, dout_;
  Results results_;
};

}  // namespace

Results compute_baseline(const CanonicalProblem& problem, const CanonicalInputs& inputs) {
  return Baseline(problem, inputs).compute();
}

}  // namespace cp_pool::verify
