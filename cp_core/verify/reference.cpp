#include "cp_core/verify/reference.h"

#include <limits>

#include <ATen/ops/bmm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "cp_core/verify/query_blocks.h"

namespace cp_pool::verify {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor transposed(const at::Tensor& matrices) {
  return matrices.transpose(1, 2);
}

Results empty_results(const CanonicalProblem& problem, at::ScalarType dtype) {
  const auto zeros = [&](std::int64_t tokens, std::int64_t heads, std::int64_t dim) {
    return at::zeros({tokens, heads, dim}, dtype);
  };
  Results results;
  results.out = zeros(problem.tokens_q(), problem.heads, problem.head_dim_v);
  results.lse = at::full({problem.tokens_q(), problem.heads, 1}, -kInfinity, dtype);
  if (problem.training) {
    results.dq = zeros(problem.tokens_q(), problem.heads, problem.head_dim_qk);
    results.dk = zeros(problem.tokens_kv(), problem.kv_heads, problem.head_dim_qk);
    results.dv = zeros(problem.tokens_kv(), problem.kv_heads, problem.head_dim_v);
  }
  return results;
}

// The same inputs twice: fp64 for the values, absolute values in fp32 for the magnitudes.
struct Operands {
  at::Tensor q, k, v, dout;
};

class ReferenceBuilder {
 public:
  ReferenceBuilder(const CanonicalProblem& problem, const CanonicalInputs& inputs)
      : problem_(problem),
        wide_{.q = inputs.q.to(at::kDouble), .k = inputs.k.to(at::kDouble), .v = inputs.v.to(at::kDouble), .dout = {}},
        absolute_{.q = inputs.q.to(at::kFloat).abs(),
                  .k = inputs.k.to(at::kFloat).abs(),
                  .v = inputs.v.to(at::kFloat).abs(),
                  .dout = {}},
        reference_{.value = empty_results(problem, at::kDouble), .magnitude = empty_results(problem, at::kFloat)} {
    if (problem.training) {
      wide_.dout = inputs.dout.to(at::kDouble);
      absolute_.dout = inputs.dout.to(at::kFloat).abs();
    }
  }

  Reference build() {
    for_each_query_block(problem_, [this](const QueryBlock& block) { add(block); });
    reference_.magnitude.lse = reference_.value.lse.abs().add_(1.0).to(at::kFloat);
    return std::move(reference_);
  }

 private:
  void add(const QueryBlock& block) {
    const at::Tensor q = query_rows(problem_, block, wide_.q);
    at::Tensor scores = at::bmm(q, transposed(key_rows(block, wide_.k))).mul_(problem_.scale());
    hide_invisible_keys(problem_, block, scores);
    const at::Tensor largest = scores.amax(-1, /*keepdim=*/true);
    const at::Tensor shift = largest.masked_fill(largest.eq(-kInfinity), 0.0);
    at::Tensor p = scores.sub_(shift).exp_();
    const at::Tensor total = p.sum(-1, /*keepdim=*/true);
    put(block, reference_.value.lse, total.log().add_(shift));
    p.div_(total.masked_fill(total.eq(0.0), 1.0));

    const at::Tensor p_narrow = p.to(at::kFloat);
    const at::Tensor out = at::bmm(p, key_rows(block, wide_.v));
    put(block, reference_.value.out, out);
    put(block, reference_.magnitude.out, at::bmm(p_narrow, key_rows(block, absolute_.v)));
    if (!problem_.training) return;

    const at::Tensor dout = query_rows(problem_, block, wide_.dout);
    const at::Tensor products = dout.mul(out);
    add_gradients(block, reference_.value, wide_, p, products.sum(-1, /*keepdim=*/true).neg_());
    add_gradients(block, reference_.magnitude, absolute_, p_narrow,
                  products.abs().sum(-1, /*keepdim=*/true).to(at::kFloat));
  }

  // dv += p' dout; ds = p (dout v' + row_term), the softmax's backward; dq = scale ds k; dk += scale ds' q.
  // With absolute operands and a positive row term: the magnitudes of the same sums.
  void add_gradients(const QueryBlock& block, Results& results, const Operands& operands, const at::Tensor& p,
                     const at::Tensor& row_term) {
    const at::Tensor dout = query_rows(problem_, block, operands.dout);
    add_key_rows(block, results.dv, at::bmm(transposed(p), dout));
    at::Tensor ds = at::bmm(dout, transposed(key_rows(block, operands.v)));
    ds.add_(row_term).mul_(p).mul_(problem_.scale());
    put(block, results.dq, at::bmm(ds, key_rows(block, operands.k)));
    add_key_rows(block, results.dk, at::bmm(transposed(ds), query_rows(problem_, block, operands.q)));
  }

  void put(const QueryBlock& block, at::Tensor& result, const at::Tensor& grouped) {
    result.narrow(0, block.q_start, block.rows).copy_(by_token(problem_, block, grouped));
  }

  const CanonicalProblem& problem_;
  Operands wide_;
  Operands absolute_;
  Reference reference_;
};

}  // namespace

Reference compute_reference(const CanonicalProblem& problem, const CanonicalInputs& inputs) {
  return ReferenceBuilder(problem, inputs).build();
}

}  // namespace cp_pool::verify
