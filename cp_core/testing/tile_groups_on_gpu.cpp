#include "cp_core/testing/tile_groups_on_gpu.h"

#include <cmath>
#include <cstdlib>
#include <ostream>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "cp_core/attention/backend.h"

namespace cp_pool::test {
namespace {

// Must be set before cuBLAS is first used, which gives the same bits again only with a workspace of fixed size.
[[maybe_unused]] const int kCublasWorkspace = setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 1);

constexpr double kUntouchedOut = 777.0;
constexpr double kUntouchedLse = -333.0;
constexpr double kSumBefore = 5.0;  // initial value of the sums that gradients are added to

double unit_roundoff(at::ScalarType dtype) {
  return std::exp2(dtype == at::kBFloat16 ? -8 : dtype == at::kHalf ? -11 : -24);
}

struct Bound {
  double relative = 0;  // factor of the magnitude
  double absolute = 0;
};

Bound bound_of(at::ScalarType dtype) {
  return {.relative = (dtype == at::kFloat ? 64 : 4) * unit_roundoff(dtype), .absolute = 64 * std::exp2(-24)};
}
// For lse and max_logit.
constexpr Bound kStatisticBound{.relative = 64.0 / (1 << 24), .absolute = 0};

std::string index_text(const at::Tensor& tensor, std::int64_t flat) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(tensor.dim()));
  for (std::size_t d = index.size(); d-- > 0;) {
    const std::int64_t size = tensor.size(static_cast<std::int64_t>(d));
    index[d] = flat % size;
    flat /= size;
  }
  return testing::PrintToString(index);
}

// Returns an empty string if every element is within its bound; else the figures.
std::string compare(const std::string& name, const at::Tensor& actual_on_gpu, const Figure& expected, Bound bound) {
  const at::Tensor actual = actual_on_gpu.cpu().to(at::kDouble).contiguous();
  const at::Tensor error = actual.sub(expected.value).abs();
  const at::Tensor allowed = expected.magnitude.mul(bound.relative).add(bound.absolute);
  // Written with `not` so that NaN is bad.
  const at::Tensor bad = error.le(allowed).logical_not();
  const std::int64_t bad_count = bad.sum().item<std::int64_t>();
  if (bad_count == 0) return {};
  const at::Tensor ratio = error.div(allowed).nan_to_num(INFINITY);
  const std::int64_t worst = ratio.argmax().item<std::int64_t>();
  const auto at_worst = [worst](const at::Tensor& t) { return t.contiguous().view(-1)[worst].item<double>(); };
  return fmt::format(
      "{}: {} of {} elements off, {} of them not finite; worst at {}: {} instead of {}, error / bound {:.3g}; max "
      "error "
      "{:.3g}, rms error {:.3g}, rms value {:.3g}\n",
      name, bad_count, actual.numel(), actual.isfinite().logical_not().sum().item<std::int64_t>(),
      index_text(actual, worst), at_worst(actual), at_worst(expected.value), at_worst(ratio),
      error.max().item<double>(), error.pow(2).mean().sqrt().item<double>(),
      expected.value.pow(2).mean().sqrt().item<double>());
}

at::Tensor fp32_like(const at::Tensor& tensor, double value) {
  return at::full(tensor.sizes(), value, tensor.options().dtype(at::kFloat));
}

// The expected whole tensors: sums include their initial value, and rows of no tile keep theirs.
Figure added(const Figure& figure) {
  return {.value = figure.value.add(kSumBefore), .magnitude = figure.magnitude};
}
Figure untouched_elsewhere(const Figure& figure, const at::Tensor& covered, double untouched) {
  const at::Tensor elsewhere = covered.logical_not();
  return {.value = figure.value.masked_fill(elsewhere, untouched),
          .magnitude = figure.magnitude.masked_fill(elsewhere, 0)};
}

std::string dtype_name(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? "bf16" : dtype == at::kHalf ? "fp16" : "fp32";
}

}  // namespace

void GpuBackendTest::TearDown() {
  at::globalContext().setDeterministicAlgorithms(false, false);
}

std::string setting_name(const Setting& s) {
  return fmt::format("{}_{}_{}_{}", to_string(s.backend), dtype_name(s.dtype), s.shape.name, s.c.name);
}

void PrintTo(const Setting& s, std::ostream* stream) {
  *stream << setting_name(s);
}

at::ScalarType precision(const Setting& s) {
  return s.backend == Backend::math ? at::kFloat : s.dtype;
}

GroupInputs on_gpu(const GroupInputs& inputs) {
  return moved(inputs, at::kCUDA);
}

AttentionPartial make_partial(const AttentionOperands& operands) {
  const std::int64_t tokens = operands.q.size(0);
  const std::int64_t heads = operands.q.size(1);
  const auto options = operands.q.options().dtype(at::kFloat);
  return {.out = at::full({tokens, heads, operands.v.size(2)}, kUntouchedOut, options),
          .lse = at::full({heads, tokens}, kUntouchedLse, options),
          .max_logit = at::full({heads}, -INFINITY, options)};
}

PackedGradients make_sums(const AttentionOperands& operands) {
  PackedGradients sums{.dq = fp32_like(operands.q, kSumBefore),
                       .dk = fp32_like(operands.k, kSumBefore),
                       .dv = fp32_like(operands.v, kSumBefore),
                       .dbias = {}};
  if (operands.bias.defined()) sums.dbias = fp32_like(operands.bias, kSumBefore);
  return sums;
}

void reset(PackedGradients& sums) {
  for (at::Tensor* sum : {&sums.dq, &sums.dk, &sums.dv, &sums.dbias}) {
    if (sum->defined()) sum->fill_(kSumBefore);
  }
}

AttentionPartial forward_in_parts(AttentionBackend& backend, const GroupCase& c, const AttentionOperands& operands) {
  AttentionPartial merged = make_partial(operands);
  at::Tensor out = at::zeros(merged.out.sizes(), at::kDouble);
  at::Tensor lse = at::full(merged.lse.sizes(), -INFINITY, at::kDouble);
  for (const TileGroup& part : backend.parts(c.group, operands)) {
    AttentionPartial partial = make_partial(operands);
    partial.max_logit = merged.max_logit;
    backend.forward(part, operands, partial);
    const at::Tensor touched =
        covered_queries({.name = {}, .q_tokens = c.q_tokens, .k_tokens = c.k_tokens, .group = part});
    const at::Tensor part_lse = partial.lse.cpu().to(at::kDouble).masked_fill(touched.logical_not(), -INFINITY);
    const at::Tensor total = at::logaddexp(lse, part_lse);
    const auto weight = [&total](const at::Tensor& l) {
      return l.sub(total).exp().nan_to_num(0.0).transpose(0, 1).unsqueeze(-1);
    };
    out = out.mul(weight(lse)).add(partial.out.cpu().to(at::kDouble).mul(weight(part_lse)));
    lse = total;
  }
  const at::Tensor covered = covered_queries(c);
  merged.out = out.where(covered.view({-1, 1, 1}), kUntouchedOut).to(at::kFloat);
  merged.lse = lse.where(covered, kUntouchedLse).to(at::kFloat);
  return merged;
}

std::string forward_differences(const GroupCase& c, const GroupExpected& expected, const AttentionPartial& partial,
                                at::ScalarType dtype) {
  const Bound bound = bound_of(dtype);
  const at::Tensor covered = covered_queries(c);
  return compare("out", partial.out, untouched_elsewhere(expected.out, covered.view({-1, 1, 1}), kUntouchedOut),
                 bound) +
         compare("lse", partial.lse, untouched_elsewhere(expected.lse, covered.view({1, -1}), kUntouchedLse),
                 kStatisticBound) +
         compare("max_logit", partial.max_logit, expected.max_logit, kStatisticBound);
}

std::string backward_differences(const GroupExpected& expected, const PackedGradients& sums, at::ScalarType dtype) {
  const Bound bound = bound_of(dtype);
  std::string text = compare("dq", sums.dq, added(expected.dq), bound) +
                     compare("dk", sums.dk, added(expected.dk), bound) +
                     compare("dv", sums.dv, added(expected.dv), bound);
  if (sums.dbias.defined()) text += compare("dbias", sums.dbias, added(expected.dbias), bound);
  return text;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.view(at::kInt).equal(b.view(at::kInt));
}

}  // namespace cp_pool::test
