#include "cp_core/verify/reference.h"

#include <limits>

#include <ATen/ops/bmm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "cp_core/verify/query_blocks.h"

namespace cp_pool::verify {
namespace {

// The weight of the rounding of a score relative to that of its p (docs/numerics.md).
constexpr double kScoreWeight = 0.5;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor transposed(const at::Tensor& matrices) {
  return matrices.transpose(1, 2);
}

// The inputs in the form of one computation: in fp64 for the values, or absolute values in fp32 for the magnitudes
// (in FP8 their squares).
struct Operands {
  at::Tensor q, k, v, dout;
};

Operands wide_operands(const CanonicalInputs& inputs) {
  const auto wide = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.to(at::kDouble) : tensor; };
  return {.q = wide(inputs.q), .k = wide(inputs.k), .v = wide(inputs.v), .dout = wide(inputs.dout)};
}

Operands absolute_operands(const CanonicalInputs& inputs, bool squared) {
  const auto absolute = [squared](const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    const at::Tensor values = tensor.to(at::kFloat);
    return squared ? values.square() : values.abs();
  };
  return {.q = absolute(inputs.q), .k = absolute(inputs.k), .v = absolute(inputs.v), .dout = absolute(inputs.dout)};
}

// The probabilities of a block of queries.
struct Softmax {
  at::Tensor p;       // [kv_heads, group * rows, seqlen_kv]
  at::Tensor p_sink;  // [kv_heads, group * rows, 1]; undefined without a sink
  at::Tensor lse;     // [kv_heads, group * rows, 1], the sink included
  at::Tensor capped;  // the scores before the bias, shaped like p; undefined without a softcap
};

class ReferenceBuilder {
 public:
  ReferenceBuilder(const CanonicalProblem& problem, const CanonicalInputs& inputs)
      : problem_(problem),
        wide_(wide_operands(inputs)),
        absolute_(absolute_operands(inputs, problem.fp8.has_value())),
        held_(inputs.held),
        reference_{.value = empty_results(problem, inputs.q.options().dtype(at::kDouble)),
                   .magnitude = empty_results(problem, inputs.q.options().dtype(at::kFloat))} {
    if (problem.bias) bias_ = inputs.bias.to(at::kDouble);
    if (problem.has_sink()) {
      sink_ = inputs.sink.to(at::kDouble);
      // No block visits sequences without keys, so the lse of their rows is set to the sink here.
      reference_.value.lse.copy_(sink_.view({1, problem.heads, 1}).expand_as(reference_.value.lse));
    }
  }

  Reference build() {
    for_each_query_block(problem_, wide_.q.device(), [this](const QueryBlock& block) { add(block); });
    if (problem_.fp8) take_roots_of_magnitudes();
    for (const auto member : {&Results::lse, &Results::max_logit}) {
      at::Tensor& magnitude = reference_.magnitude.*member;
      magnitude = magnitude.clamp_min(0.0).add_((reference_.value.*member).abs().add_(1.0).to(at::kFloat));
    }
    return std::move(reference_);
  }

 private:
  // In FP8, magnitudes are sums of squares so far. The floor of lse and max_logit is that of fp32.
  void take_roots_of_magnitudes() {
    const double floor = fp8_floor_factor(*problem_.fp8, /*gradient=*/false, /*elements=*/1);
    for (const auto& [name, member] : kResults) {
      at::Tensor& magnitude = reference_.magnitude.*member;
      if (!magnitude.defined()) continue;
      const bool by_head = member == &Results::lse || member == &Results::max_logit;
      if (problem_.has_fp8_output() && !by_head) magnitude.add_((reference_.value.*member).square().to(at::kFloat));
      magnitude.clamp_min_(0.0).sqrt_();
      if (by_head) magnitude.mul_(floor / floor_factor(DType::fp32));
    }
  }

  void add(const QueryBlock& block) {
    const Softmax softmax = softmax_of(block);
    put(block, reference_.value.lse, softmax.lse);
    const at::Tensor underflow = underflow_of(block, softmax.p);
    at::Tensor p_narrow =
        problem_.fp8 ? squares_with_rounding_of_scores(block, softmax.p) : with_rounding_of_scores(block, softmax);
    if (underflow.defined()) p_narrow = p_narrow.add(underflow);
    const at::Tensor out = at::bmm(softmax.p, key_rows(block, wide_.v));
    put(block, reference_.value.out, out);
    const at::Tensor out_magnitude = at::bmm(p_narrow, key_rows(block, absolute_.v));
    put(block, reference_.magnitude.out, out_magnitude);
    if (!problem_.training) return;

    // The backward of the softmax subtracts delta from dout . v. Delta is a sum over keys, computed here as a sum over
    // the elements of out.
    const at::Tensor products = query_rows(problem_, block, wide_.dout).mul(out);
    const at::Tensor delta = products.sum(-1, /*keepdim=*/true);
    at::Tensor slope;
    if (softmax.capped.defined()) slope = softmax.capped.div(problem_.softcap).square_().neg_().add_(1.0);
    const double scale = problem_.scale();
    add_gradients(block, reference_.value, wide_, softmax.p, delta.neg(), {}, slope, scale);
    if (problem_.has_dsink()) add_dsink(block, reference_.value, softmax.p_sink.mul(delta).neg_());
    if (problem_.fp8) {
      // Delta has the rounding of dout and the error of out.
      const at::Tensor squares = query_rows(problem_, block, absolute_.dout).mul(out_magnitude).sum(-1, true);
      const at::Tensor error_of_delta = products.square().sum(-1, true).to(at::kFloat).add_(squares);
      add_gradients(block, reference_.magnitude, absolute_, p_narrow, error_of_delta, {}, {}, scale * scale);
      if (problem_.has_dsink()) add_dsink(block, reference_.magnitude, softmax.p_sink.square().mul_(error_of_delta));
      return;
    }

    const at::Tensor delta_magnitude = products.abs().sum(-1, /*keepdim=*/true);
    at::Tensor error_of_ds = underflow;
    at::Tensor error_of_delta;
    if (problem_.has_large_scores()) {
      // The error of out, from which delta is computed, may be far larger than the rounding of out.
      error_of_delta = query_rows(problem_, block, absolute_.dout).mul(out_magnitude).sum(-1, /*keepdim=*/true);
      error_of_ds = underflow.add(softmax.p.to(at::kFloat).mul_(error_of_delta));
      // The product of the errors of p and of delta is small beside each of them, unless both are near 1.
      delta_magnitude.add_(error_of_delta, floor_factor(problem_.dtype));
    }
    // The derivative of a softcap is at most 1.
    add_gradients(block, reference_.magnitude, absolute_, p_narrow, delta_magnitude.to(at::kFloat), error_of_ds, {},
                  scale);
    if (!problem_.has_dsink()) return;
    at::Tensor of_sink = with_rounding_of_lse(block, softmax).mul_(delta_magnitude);
    if (error_of_delta.defined()) of_sink.add_(softmax.p_sink.mul(error_of_delta));
    add_dsink(block, reference_.magnitude, of_sink);
  }

  // The rounding of fp32 relative to the rounding of this dtype, which is the unit of magnitudes.
  [[nodiscard]] double weight_of_fp32() const { return floor_factor(DType::fp32) / floor_factor(problem_.dtype); }

  // Returns the magnitude of p. In fp32, with large scores and with a softcap it is p * (1 + w * sum of |q| |k| *
  // scale), since the rounding error of a score becomes a relative error of p; otherwise the rounding of p itself is
  // far larger, and p is returned. Also records the rounding of scores in the magnitudes of lse and max_logit. With
  // large scores, the error of lse is included, since p = exp(score - lse) and a row may have only tiny p.
  at::Tensor with_rounding_of_scores(const QueryBlock& block, const Softmax& softmax) {
    at::Tensor p = softmax.p.to(at::kFloat);
    if (problem_.dtype != DType::fp32 && !problem_.has_large_scores() && problem_.softcap == 0) return p;
    at::Tensor rounding = at::bmm(query_rows(problem_, block, absolute_.q), transposed(key_rows(block, absolute_.k)));
    rounding.mul_(kScoreWeight * problem_.scale());
    if (softmax.capped.defined()) rounding.add_(softmax.capped.abs(), tanh_error(problem_.dtype));
    const at::Tensor of_p = p.mul(rounding);
    put(block, reference_.magnitude.lse, of_p.sum(-1, /*keepdim=*/true));
    raise_max_logit(block, reference_.magnitude, rounding.amax(-1, /*keepdim=*/true));
    if (problem_.has_large_scores()) of_p.add_(p.mul(error_of_lse(block, softmax).to(at::kFloat)));
    return of_p.mul_(weight_of_fp32()).add_(p);
  }

  // In FP8 the errors of many keys are independent, and far smaller together than the sum of their bounds, so the
  // squares of magnitudes are added up. Returns that of p: p^2 * (2 + w), for the roundings of p and v, where w is the
  // square of the magnitude of the score's error, from the roundings of q and k. Records w for lse and max_logit.
  at::Tensor squares_with_rounding_of_scores(const QueryBlock& block, const at::Tensor& p) {
    at::Tensor rounding = at::bmm(query_rows(problem_, block, absolute_.q), transposed(key_rows(block, absolute_.k)));
    rounding.mul_(2 * problem_.scale() * problem_.scale());
    const at::Tensor squares = p.square().to(at::kFloat);
    // All scores of a row share the rounding of its q, which the mean of the keys multiplies.
    const at::Tensor mean_key = at::bmm(p, key_rows(block, wide_.k)).square_().to(at::kFloat);
    const at::Tensor of_q = mean_key.mul_(query_rows(problem_, block, absolute_.q)).sum(-1, /*keepdim=*/true);
    put(block, reference_.magnitude.lse,
        squares.mul(rounding).sum(-1, /*keepdim=*/true).add_(of_q, problem_.scale() * problem_.scale()));
    raise_max_logit(block, reference_.magnitude, rounding.amax(-1, /*keepdim=*/true));
    return rounding.add_(2).mul_(squares);
  }

  // Returns the error by underflow of p and its products at visible keys, in units of the bound's floor. Undefined
  // without large scores, where it would be negligible.
  [[nodiscard]] at::Tensor underflow_of(const QueryBlock& block, const at::Tensor& p) const {
    if (!problem_.has_large_scores()) return {};
    const double least = underflow_error(problem_.dtype) / floor_factor(problem_.dtype);
    at::Tensor underflow = at::full(p.sizes(), least, absolute_.q.options());
    const at::Tensor hidden =
        visible_keys(problem_, block.seqlen_q, block.seqlen_kv, block.first_row, block.rows, p.device()).logical_not_();
    by_head(problem_, block, underflow).masked_fill_(hidden, 0.0);
    return underflow;
  }

  // Returns the error of lse in units of the floor of fp32: [kv_heads, group * rows, 1]. with_rounding_of_scores must
  // have recorded the rounding of the scores before.
  at::Tensor error_of_lse(const QueryBlock& block, const Softmax& softmax) {
    const at::Tensor of_scores = query_rows(problem_, block, reference_.magnitude.lse).clamp_min(0.0);
    return softmax.lse.abs().masked_fill_(softmax.lse.isinf(), 0.0).add_(1.0).add_(of_scores);
  }

  // Returns the magnitude of the probability of the sink, exp(sink - lse).
  at::Tensor with_rounding_of_lse(const QueryBlock& block, const Softmax& softmax) {
    if (!problem_.has_large_scores()) return softmax.p_sink.clone();
    return error_of_lse(block, softmax)
        .mul_(weight_of_fp32())
        .add_(1.0)
        .mul_(softmax.p_sink)
        .add_(underflow_error(DType::fp32) / floor_factor(problem_.dtype));
  }

  Softmax softmax_of(const QueryBlock& block) {
    at::Tensor scores = at::bmm(query_rows(problem_, block, wide_.q), transposed(key_rows(block, wide_.k)));
    scores.mul_(problem_.scale());
    Softmax softmax;
    if (problem_.softcap != 0) {
      scores.div_(problem_.softcap).tanh_().mul_(problem_.softcap);
      softmax.capped = scores.clone();
    }
    if (bias_.defined()) by_head(problem_, block, scores).add_(bias_rows(problem_, block, bias_));
    hide_invisible_keys(problem_, block, held_, scores);
    const at::Tensor largest = scores.amax(-1, /*keepdim=*/true);
    raise_max_logit(block, reference_.value, largest);

    at::Tensor shift = largest;
    at::Tensor sink;
    if (sink_.defined()) {
      sink = per_head(problem_, block, sink_);
      shift = at::maximum(largest, sink);
    }
    shift = shift.masked_fill(shift.eq(-kInfinity), 0.0);
    softmax.p = scores.sub_(shift).exp_();
    at::Tensor total = softmax.p.sum(-1, /*keepdim=*/true);
    if (sink.defined()) {
      softmax.p_sink = sink.sub(shift).exp_();
      total.add_(softmax.p_sink);
      softmax.p_sink.div_(total);
    }
    softmax.lse = total.log().add_(shift);
    softmax.p.div_(total.masked_fill(total.eq(0.0), 1.0));
    return softmax;
  }

  // dv += p' dout; ds = p (dout v' + row_term); dbias += ds; dq = scale ds k; dk += scale ds' q.
  // With absolute operands and a positive row term, these are the magnitudes of the sums. error_of_ds: is added to ds;
  // slope: of the softcap, by which ds is multiplied in dq and dk. Both may be undefined. With squares as operands,
  // `scale` is that of the scores squared, too.
  void add_gradients(const QueryBlock& block, Results& results, const Operands& operands, const at::Tensor& p,
                     const at::Tensor& row_term, const at::Tensor& error_of_ds, const at::Tensor& slope, double scale) {
    const at::Tensor dout = query_rows(problem_, block, operands.dout);
    add_key_rows(block, results.dv, at::bmm(transposed(p), dout));
    at::Tensor ds = at::bmm(dout, transposed(key_rows(block, operands.v)));
    ds.add_(row_term).mul_(p);
    if (error_of_ds.defined()) ds.add_(error_of_ds);
    if (problem_.has_dbias()) add_bias_rows(problem_, block, results.dbias, ds);
    if (slope.defined()) ds.mul_(slope);
    ds.mul_(scale);
    put(block, results.dq, at::bmm(ds, key_rows(block, operands.k)));
    add_key_rows(block, results.dk, at::bmm(transposed(ds), query_rows(problem_, block, operands.q)));
  }

  // per_row: [kv_heads, group * rows, 1].
  void add_dsink(const QueryBlock& block, Results& results, const at::Tensor& per_row) {
    results.dsink.add_(by_head(problem_, block, per_row).sum(1).view({1, problem_.heads, 1}));
  }

  // largest: of each row, [kv_heads, group * rows, 1].
  void raise_max_logit(const QueryBlock& block, Results& results, const at::Tensor& largest) {
    at::maximum_out(results.max_logit, results.max_logit,
                    by_head(problem_, block, largest).amax(1).view({1, problem_.heads, 1}));
  }

  void put(const QueryBlock& block, at::Tensor& result, const at::Tensor& grouped) {
    result.narrow(0, block.q_start, block.rows).copy_(by_token(problem_, block, grouped));
  }

  const CanonicalProblem& problem_;
  Operands wide_;
  Operands absolute_;
  at::Tensor held_;
  at::Tensor bias_;
  at::Tensor sink_;
  Reference reference_;
};

}  // namespace

Results empty_results(const CanonicalProblem& problem, const at::TensorOptions& options) {
  const auto zeros = [&](std::int64_t tokens, std::int64_t heads, std::int64_t dim) {
    return at::zeros({tokens, heads, dim}, options);
  };
  Results results;
  results.out = zeros(problem.tokens_q(), problem.heads, problem.head_dim_v);
  results.lse = at::full({problem.tokens_q(), problem.heads, 1}, -kInfinity, options);
  results.max_logit = at::full({1, problem.heads, 1}, -kInfinity, options);
  if (problem.training) {
    results.dq = zeros(problem.tokens_q(), problem.heads, problem.head_dim_qk);
    results.dk = zeros(problem.tokens_kv(), problem.kv_heads, problem.head_dim_qk);
    results.dv = zeros(problem.tokens_kv(), problem.kv_heads, problem.head_dim_v);
  }
  if (problem.has_dbias()) results.dbias = at::zeros(bias_extents(problem), options);
  if (problem.has_dsink()) results.dsink = zeros(1, problem.heads, 1);
  return results;
}

at::Tensor bias_by_row(const at::Tensor& bias) {
  return bias.permute({2, 0, 1, 3}).reshape({bias.size(2), bias.size(0) * bias.size(1), bias.size(3)});
}

Reference compute_reference(const CanonicalProblem& problem, const CanonicalInputs& inputs) {
  return ReferenceBuilder(problem, inputs).build();
}

}  // namespace cp_pool::verify
