#include "cp_core/verify/expected.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "cp_core/verify/baseline.h"
#include "cp_core/verify/reference.h"

namespace cp_pool::verify {
namespace {

// c of the bound: what rounding needs beyond twice the baseline's own error (docs/numerics.md).
constexpr double kFloor16Bit = 4;
constexpr double kFloorFp32 = 16;

double floor_factor(DType dtype) {
  return (dtype == DType::fp32 ? kFloorFp32 : kFloor16Bit) * unit_roundoff(dtype);
}

// The tolerances of Transformer Engine's context-parallel tests, absolute and relative at once.
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

ExpectedTensor make_tensor(std::string_view name, bool query_side, const at::Tensor& value, const at::Tensor& baseline,
                           const at::Tensor& magnitude, double floor, double ceiling) {
  // The lse of a row that sees no key is -inf, exactly: nothing to allow.
  const at::Tensor exact = value.isinf();
  const at::Tensor error = baseline.to(at::kDouble).sub_(value).masked_fill_(exact, 0.0);
  ExpectedTensor tensor{.name = name,
                        .query_side = query_side,
                        .value = value,
                        .baseline_error = row_rms(error),
                        .bound = {},
                        .ceiling = ceiling,
                        .ceiling_holds = {}};
  const at::Tensor allowance = row_rms(magnitude.to(at::kDouble).masked_fill(exact, 0.0)).mul_(floor);
  tensor.bound = tensor.baseline_error.mul(2.0).add_(allowance);
  if (ceiling > 0) tensor.ceiling_holds = error.abs().le(value.abs().add_(1.0).mul_(ceiling)).all(-1);
  return tensor;
}

}  // namespace

Expected compute_expected(const CanonicalProblem& problem, const CanonicalInputs& inputs) {
  Expected expected;
  const Reference reference = compute_reference(problem, inputs);
  const Results baseline = compute_baseline(problem, inputs);
  const Results& value = reference.value;
  const Results& magnitude = reference.magnitude;
  const double floor = floor_factor(problem.dtype);
  const double ceiling = fixed_tolerance(problem);

  const auto add = [&](std::string_view name, bool query_side, at::Tensor Results::* member) {
    expected.tensors.push_back(
        make_tensor(name, query_side, value.*member, baseline.*member, magnitude.*member, floor, ceiling));
  };
  add("out", true, &Results::out);
  expected.tensors.push_back(
      make_tensor("lse", true, value.lse, baseline.lse, magnitude.lse, kFloorFp32 * kUnitRoundoffFp32, /*ceiling=*/0));
  if (problem.training) {
    add("dq", true, &Results::dq);
    add("dk", false, &Results::dk);
    add("dv", false, &Results::dv);
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
    for (const auto& part : {tensor.value, tensor.baseline_error, tensor.bound, tensor.ceiling_holds}) add(part);
  }
  return total;
}

}  // namespace cp_pool::verify
