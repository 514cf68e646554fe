#include "cp_core/verify/mask_probe.h"

#include <cmath>

#include <ATen/ops/full_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "cp_core/verify/query_blocks.h"

namespace cp_pool::verify {
namespace {

// A sum of codes that is wrong by one key differs by about 1 in every element. A quarter is well below that and leaves
// room for rounding.
constexpr double kOneKeyIsMore = 0.25;

constexpr double kLargestWeight = 32768;
constexpr double kHalfOfLeastE4m3 = 0x1p-10;  // a smaller number becomes 0

at::Tensor codes_like(const at::Tensor& values) {
  return at::where(values.ge(0.0), 1.0, -1.0).to(at::kFloat);
}

// Sums of codes over the keys that a query sees, and over the queries that see a key.
struct Sums {
  at::Tensor keys_seen;    // fp32 [tokens_q, 1]
  at::Tensor key_codes;    // fp32 [tokens_q, heads, head_dim_v]
  at::Tensor query_codes;  // fp32 [tokens_kv, heads, head_dim_v]
  at::Tensor errors;       // fp32 [tokens_kv, 1]: of the squares of the errors of queries that see the key
};

// errors: fp32 [tokens_q, 1], the relative errors of the weights of a query.
Sums sum_codes(const CanonicalProblem& problem, const at::Tensor& v, const at::Tensor& weighted_dout,
               const at::Tensor& errors) {
  const auto options = v.options();
  Sums sums{.keys_seen = at::zeros({problem.tokens_q(), 1}, options),
            .key_codes = at::zeros({problem.tokens_q(), problem.heads, problem.head_dim_v}, options),
            .query_codes = at::zeros(v.sizes(), options),
            .errors = at::zeros({problem.tokens_kv(), 1}, options)};
  for_each_query_block(problem, v.device(), [&](const QueryBlock& block) {
    const at::Tensor visible =
        visible_keys(problem, block.seqlen_q, block.seqlen_kv, block.first_row, block.rows, v.device()).to(at::kFloat);
    const at::Tensor codes = v.narrow(0, block.kv_start, block.seqlen_kv);
    sums.keys_seen.narrow(0, block.q_start, block.rows).copy_(visible.sum(1, /*keepdim=*/true));
    sums.key_codes.narrow(0, block.q_start, block.rows)
        .copy_(at::matmul(visible, codes.flatten(1)).view({block.rows, problem.heads, problem.head_dim_v}));
    const at::Tensor dout = weighted_dout.narrow(0, block.q_start, block.rows).flatten(1);
    sums.query_codes.narrow(0, block.kv_start, block.seqlen_kv)
        .add_(at::matmul(visible.t(), dout).view({block.seqlen_kv, problem.heads, problem.head_dim_v}));
    sums.errors.narrow(0, block.kv_start, block.seqlen_kv)
        .add_(at::matmul(visible.t(), errors.narrow(0, block.q_start, block.rows).square()));
  });
  return sums;
}

ExpectedTensor tensor_of(std::string_view name, const at::Tensor& value, const at::Tensor& bound) {
  ExpectedTensor tensor;
  tensor.name = name;
  tensor.value = value.to(at::kDouble);
  tensor.bound = bound.to(at::kDouble).expand({value.size(0), value.size(1)}).contiguous();
  tensor.baseline_error = at::zeros_like(tensor.bound);
  return tensor;
}

}  // namespace

Case mask_probe_case(const Case& c, std::int64_t heads) {
  Case probe = c;
  probe.heads = probe.kv_heads = heads;
  probe.bias.reset();
  probe.softmax = SoftmaxType::vanilla;
  probe.max_logit = false;
  return probe;
}

MaskProbe make_mask_probe(const CanonicalProblem& problem, const at::Device& device) {
  const auto dtype = scalar_type_of(problem.dtype);
  // In FP8 the weights of a row are rounded alike, and so are results.
  const double u = problem.fp8 ? kUnitRoundoffE4m3 : unit_roundoff(problem.dtype);
  MaskProbe probe;
  probe.inputs = make_inputs(problem, device);
  probe.inputs.q.zero_();
  const at::Tensor v = codes_like(probe.inputs.v);
  probe.inputs.v = v.to(dtype);

  // The forward's sums come first, since dout is made from the counts of visible keys.
  const at::Tensor none = at::zeros({problem.tokens_q(), problem.heads, problem.head_dim_v}, v.options());
  const Sums forward = sum_codes(problem, v, none, at::zeros({problem.tokens_q(), 1}, v.options()));
  const at::Tensor count = forward.keys_seen.clamp_min(1.0);  // in rows that see no key, the sums are 0 anyway
  // The rounding of out * count. Its elements are about sqrt(count), and may be larger in rows with one or two keys.
  const at::Tensor rounding = at::maximum(count.sqrt(), row_rms(forward.key_codes)).mul(u);
  probe.expected.tensors.push_back(
      tensor_of("mask out", forward.key_codes.div(count.unsqueeze(2)),
                rounding.add(kOneKeyIsMore).div(count).masked_fill(forward.keys_seen.eq(0.0), 0.0)));
  const at::Tensor lse = forward.keys_seen.to(at::kDouble).log().unsqueeze(2).expand({-1, problem.heads, 1});
  const at::Tensor lse_bound = lse.select(2, 0).abs().add(1.0).mul(16 * kUnitRoundoffFp32);
  probe.expected.tensors.push_back(tensor_of("mask lse", lse, lse_bound.masked_fill(lse_bound.isinf(), 0.0)));
  if (!problem.training) return probe;

  // The weight is limited, since fp16 has no larger numbers. The effect of one query still shows with the smaller
  // weight.
  at::Tensor weight = problem.dtype == DType::fp16 ? forward.keys_seen.clamp_max(kLargestWeight) : forward.keys_seen;
  if (problem.has_fp8_backward()) weight = weight.clamp_min(1.0).log2().floor_().exp2_();  // FP8 has powers of two
  probe.inputs.dout = codes_like(probe.inputs.dout).mul(weight.unsqueeze(2)).to(dtype);
  // The dtype rounds counts that it cannot represent, so the expected sums use the rounded counts.
  const at::Tensor weighted = probe.inputs.dout.to(at::kFloat).div(count.unsqueeze(2));
  const double u_dv = problem.has_fp8_backward() ? kUnitRoundoffE4m3 : unit_roundoff(problem.dtype);
  at::Tensor errors = at::full_like(count, u_dv);
  if (problem.has_fp8_backward() && problem.fp8->scaling == Fp8Scaling::delayed) {
    errors = at::maximum(errors, count.mul(kHalfOfLeastE4m3)).clamp_max_(1.0);  // a weight that rounds to 0 is lost
  }
  const Sums backward = sum_codes(problem, v, weighted, errors);
  probe.expected.tensors.push_back(
      tensor_of("mask dv", backward.query_codes,
                at::maximum(backward.errors.sqrt(), row_rms(backward.query_codes).mul(u_dv))
                    .mul(2.0)
                    .add(kOneKeyIsMore)
                    .masked_fill(backward.errors.eq(0.0), 0.0)));
  return probe;
}

MaskProbe make_weight_probe(const CanonicalProblem& problem, const CanonicalInputs& inputs, const Expected& expected) {
  MaskProbe probe{.inputs = inputs, .expected = {}};
  probe.inputs.v = at::ones_like(inputs.v);
  probe.inputs.dout.reset();
  const at::Tensor lse = expected.tensor("lse").value;  // [tokens_q, heads, 1]
  at::Tensor sum = at::ones_like(lse);
  if (inputs.sink.defined()) sum = sum.sub(inputs.sink.to(at::kDouble).view({1, -1, 1}).sub(lse).exp_());
  const at::Tensor blind = lse.isinf().logical_or(sum.le(0.0));
  sum = sum.masked_fill(blind, 0.0);
  // Each weight, and perhaps the result, is rounded to e4m3, and the sink has the error of lse.
  constexpr double kErrorOfSink = 0.25;
  constexpr double kOtherErrors = 0.01;
  const double error = (problem.has_fp8_output() ? 2 : 1) * kUnitRoundoffE4m3 + kOtherErrors;
  const at::Tensor bound = sum.mul(error).add(at::ones_like(sum).sub_(sum).mul_(kErrorOfSink));
  const at::Tensor value = sum.expand({-1, -1, inputs.v.size(2)});
  probe.expected.tensors.push_back(tensor_of("weights", value, bound.masked_fill(blind, 0.0).select(2, 0)));
  return probe;
}

}  // namespace cp_pool::verify
