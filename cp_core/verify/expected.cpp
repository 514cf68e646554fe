#include "cp_core/verify/expected.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "cp_core/vector_math.h"
#include "cp_core/verify/baseline.h"
#include "cp_core/verify/reference.h"

namespace cp_pool::verify {
namespace {

constexpr double kCeilingMargin = 3;
// With fewer elements, the largest observed rounding error says little about the largest possible one.
constexpr std::int64_t kElementsForACeiling = 1024;
// With fewer visible keys, p is near 1 in many rows, and the gradient of a score is a difference of nearly equal
// numbers. The difference is then mostly the rounding error of out, which the baseline's delta does not have.
constexpr std::int64_t kKeysForACeiling = 8;

// Returns the largest number of keys that the mask lets a row see, whatever the lengths.
std::int64_t most_visible_keys(const CanonicalProblem& problem) {
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  if (problem.chunk > 0) most = problem.chunk;
  if (!problem.mask.empty()) most = 0;
  for (const MaskSlice& first : problem.mask) {
    const std::int64_t query = first.queries.begin;
    std::int64_t keys = 0;
    for (const MaskSlice& slice : problem.mask) {
      if (slice.queries.begin <= query && query < slice.queries.end) keys += slice.keys.size();
    }
    most = std::max(most, keys);
  }
  const auto [left, right] = problem.window;
  const std::int64_t ahead = problem.causal ? 0 : right;
  if (left >= 0 && ahead >= 0) most = std::min(most, left + ahead + 1);
  return most;
}

}  // namespace

double fixed_tolerance(const CanonicalProblem& problem) {
  switch (problem.dtype) {
    case DType::fp32:
      return 1e-4;
    case DType::fp16:
      return 5e-3;
    case DType::bf16:
      return problem.heads == problem.kv_heads ? 2.5e-2 : 3.5e-2;
  }
  throw std::logic_error("unknown dtype");
}

at::Tensor row_rms(const at::Tensor& elements) {
  return elements.square().mean(-1).sqrt_();
}

at::Tensor row_part(const at::Tensor& elements, RowPart part) {
  if (part == RowPart::whole) return elements;
  const std::int64_t others = elements.size(-1) - 1;
  return part == RowPart::last ? elements.narrow(-1, others, 1) : elements.narrow(-1, 0, others);
}

namespace {

// underflow: the absolute error that underflow may cause in rows to which anything contributes.
ExpectedTensor make_tensor(std::string_view name, const at::Tensor& value, const at::Tensor& baseline,
                           const at::Tensor& magnitude, double floor, double ceiling, double underflow,
                           RowPart part = RowPart::whole) {
  const at::Tensor judged = row_part(value, part);
  // The lse of a row that sees no key must be exactly -inf, so no error is allowed.
  const at::Tensor exact = judged.isinf();
  const at::Tensor error = row_part(baseline, part).to(at::kDouble).sub_(judged).masked_fill_(exact, 0.0);
  ExpectedTensor tensor{
      .name = name, .part = part, .value = value, .baseline_error = row_rms(error), .bound = {}, .untouched = {}};
  at::Tensor allowance = row_rms(row_part(magnitude, part).to(at::kDouble).masked_fill(exact, 0.0)).mul_(floor);
  if (underflow > 0) allowance = allowance.add(allowance.gt(0.0), underflow);
  tensor.bound = tensor.baseline_error.mul(kAllowedBaselines).add_(allowance);
  tensor.ceiling_asked = ceiling;
  if (ceiling > 0 && value.numel() > 0) {
    tensor.rounding = error.abs().div_(value.abs().add_(1.0)).max().item<double>();
  }
  return tensor;
}

}  // namespace

double ExpectedTensor::ceiling() const {
  const bool known = value.numel() >= kElementsForACeiling && kCeilingMargin * rounding <= ceiling_asked;
  return known ? ceiling_asked : 0;
}

Expected compute_expected(const CanonicalProblem& problem, const CanonicalInputs& inputs, const SumShares& sum_shares) {
  settle_vector_math();
  Expected expected;
  Reference reference = compute_reference(problem, inputs);
  const Results baseline = compute_baseline(problem, inputs, sum_shares);
  if (sum_shares && problem.has_shared_dbias()) {
    sum_shares(reference.value.dbias);
    sum_shares(reference.magnitude.dbias);
  }
  const auto floor_of = [&](at::Tensor Results::* member) {
    if (member == &Results::lse || member == &Results::max_logit) return floor_factor(DType::fp32);
    if (!problem.fp8) return floor_factor(problem.dtype);
    return fp8_floor_factor(*problem.fp8, member != &Results::out, (reference.value.*member).size(-1));
  };
  const auto add = [&](std::string_view name, at::Tensor Results::* member, double ceiling, double underflow,
                       RowPart part = RowPart::whole) {
    if (!(reference.value.*member).defined()) return;
    expected.tensors.push_back(make_tensor(name, reference.value.*member, baseline.*member, reference.magnitude.*member,
                                           floor_of(member), ceiling, underflow, part));
  };
  // The fixed tolerances are made for inputs with standard deviation 1.
  const bool has_ceiling = !problem.fp8 && problem.input_scale == 1 && !problem.has_offset() &&
                           most_visible_keys(problem) >= kKeysForACeiling;
  const double ceiling = has_ceiling ? fixed_tolerance(problem) : 0;
  const auto underflow_of = [&](DType dtype) { return problem.has_large_scores() ? underflow_error(dtype) : 0; };
  const double underflow = underflow_of(problem.dtype);
  add("out", &Results::out, ceiling, underflow);
  add("lse", &Results::lse, /*ceiling=*/0, /*underflow=*/0);
  add("max_logit", &Results::max_logit, /*ceiling=*/0, /*underflow=*/0);
  const RowPart part = problem.has_offset() ? RowPart::all_but_last : RowPart::whole;
  add("dq", &Results::dq, ceiling, underflow, part);
  add("dk", &Results::dk, ceiling, underflow, part);
  if (problem.has_offset()) {
    add("offset dq", &Results::dq, ceiling, underflow, RowPart::last);
    add("offset dk", &Results::dk, ceiling, underflow, RowPart::last);
  }
  add("dv", &Results::dv, ceiling, underflow);
  add("dsink", &Results::dsink, /*ceiling=*/0, underflow_of(DType::fp32));
  if (problem.has_dbias()) {
    const at::Tensor magnitude = bias_by_row(reference.magnitude.dbias);
    expected.tensors.push_back(make_tensor("dbias", bias_by_row(reference.value.dbias), bias_by_row(baseline.dbias),
                                           magnitude, floor_of(&Results::dbias), /*ceiling=*/0, underflow));
    expected.tensors.back().untouched = magnitude.eq(0.0);
  }
  return expected;
}

const ExpectedTensor& Expected::tensor(std::string_view name) const {
  const auto found = std::ranges::find(tensors, name, &ExpectedTensor::name);
  if (found == tensors.end()) throw std::out_of_range("nothing is expected of tensor " + std::string(name));
  return *found;
}

std::size_t Expected::bytes() const {
  std::size_t total = 0;
  const auto add = [&total](const at::Tensor& tensor) {
    if (tensor.defined()) total += tensor.nbytes();
  };
  for (const auto& tensor : tensors) {
    for (const auto& part : {tensor.value, tensor.baseline_error, tensor.bound, tensor.untouched}) add(part);
  }
  return total;
}

}  // namespace cp_pool::verify
