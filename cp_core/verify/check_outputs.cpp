#include "cp_core/verify/check_outputs.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "cp_core/verify/baseline.h"
#include "cp_core/verify/check.h"

namespace cp_pool::verify {
namespace {

// Checks that a result exists and has the dtype, then calls `measure` to compare it with the reference. actual: the
// rank's result.
template <typename Measure>
Check check_result(const Expected& expected, const char* name, const at::Tensor& actual, at::ScalarType dtype,
                   Measure&& measure) {
  if (!actual.defined()) return failed_check(name, "no result");
  if (actual.scalar_type() != dtype) {
    return failed_check(
        name, fmt::format("dtype {} instead of {}", c10::toString(actual.scalar_type()), c10::toString(dtype)));
  }
  try {
    return measure(expected.tensor(name));
  } catch (const ShapeError& error) {
    return failed_check(name, error.what());
  }
}

// FP8 numbers are numbers of bf16.
CheckRules rules_of(const Case& c, const RankView& view) {
  return {.judges_padding = view.sharding.judges_padding,
          .bound_factor = view.sharding.bound_factor,
          .judges_bits = !c.fp8};
}

// The bounds are not widened, since they must stay below the effect of one key. Few values occur in a probe, so their
// bits may be alike by chance.
CheckRules rules_of_probe(const RankView& view) {
  return {.judges_padding = view.sharding.judges_padding, .bound_factor = 1, .judges_bits = false};
}

Check check_shard(const Expected& expected, const char* name, const RankRows& rows, const at::Tensor& shard,
                  at::ScalarType dtype, const CheckRules& rules) {
  return check_result(expected, name, shard, dtype, [&](const ExpectedTensor& tensor) {
    return check_tensor(tensor, rows, rows.packed(shard), rules);
  });
}

// Checks a result with one value per head and row. actual: fp32 [heads, rows], or [heads] for one row.
Check check_by_head(const Expected& expected, const char* name, const RankRows& rows, const at::Tensor& actual,
                    const CheckRules& rules) {
  return check_result(expected, name, actual, at::kFloat, [&](const ExpectedTensor& tensor) {
    const at::Tensor matrix = actual.dim() == 1 ? actual.unsqueeze(1) : actual;
    if (matrix.dim() != 2) throw ShapeError(fmt::format("{} dimensions instead of 2", matrix.dim()));
    return check_tensor(tensor, rows, matrix.t().unsqueeze(-1), rules);
  });
}

// Returns the single row of a result that has one value per head.
RankRows one_row(const at::Tensor& like) {
  return RankRows::replicated(1, 1, PaddingFill::nan, like.defined() ? like.device() : at::Device(at::kCPU));
}

}  // namespace

std::vector<Check> check_outputs(const Case& c, const Expected& expected, const RankView& view,
                                 const Results& results) {
  const CheckRules rules = rules_of(c, view);
  std::vector<Check> checks{check_shard(expected, "out", view.q, results.out, scalar_type_of(c.dtype), rules)};
  if (view.sharding.needs_lse || results.lse.defined()) {
    checks.push_back(check_by_head(expected, "lse", view.q, results.lse, rules));
  }
  if (c.max_logit) {
    checks.push_back(check_by_head(expected, "max_logit", one_row(results.out), results.max_logit, rules));
  }
  if (c.training) std::ranges::move(check_gradients(c, expected, view, results), std::back_inserter(checks));
  return checks;
}

Check check_part_lse(const CanonicalProblem& problem, const CanonicalInputs& inputs, const RankView& view,
                     const Results& results) {
  CanonicalProblem part = problem;
  part.training = false;
  part.softmax = SoftmaxType::vanilla;
  CanonicalInputs of_part = inputs;
  of_part.held = at::zeros({problem.tokens_kv()}, at::kBool);
  auto* const held = of_part.held.mutable_data_ptr<bool>();
  for (const LocalRow& row : view.kv.rows()) {
    if (row.canonical >= 0) held[row.canonical] = true;
  }
  of_part.held = of_part.held.to(inputs.q.device());
  of_part.sink.reset();
  const char* const name = "part_lse";
  Expected expected = compute_expected(part, of_part);
  std::ranges::find(expected.tensors, "lse", &ExpectedTensor::name)->name = name;
  return check_by_head(expected, name, view.q, results.part_lse, rules_of({}, view));
}

std::vector<Check> check_fp8_scales(const CanonicalProblem& problem, const CanonicalInputs& inputs,
                                    const Results& results) {
  constexpr double kRounding = 1 + 0x1p-20;  // of a scale in fp32
  const at::Tensor told = results.fp8_scales.to(at::kCPU, at::kDouble);
  std::vector<Check> checks;
  const auto add = [&](const std::string& name, bool ok, const std::string& message) {
    Check right;  // its error and bound are 0
    right.tensor = name;
    checks.push_back(ok ? right : failed_check(name, message));
  };
  const auto add_input = [&](std::int64_t column, std::string_view name, const at::Tensor& input) {
    const auto amax = told[0][column].item<double>();
    const auto scale = told[1][column].item<double>();
    if (!input.defined() || input.numel() == 0) return;
    const auto largest = input.abs().max().item<double>();
    if (!std::isnan(amax)) {
      add(fmt::format("amax of {}", name), amax == largest,
          fmt::format("{:.6g}, and the largest magnitude on all ranks is {:.6g}", amax, largest));
    }
    if (std::isnan(scale) || problem.fp8->scaling != Fp8Scaling::current) return;
    const double scaled = scale * largest / kRounding;
    const bool fits_e5m2 = name == "dout" && scaled > kLargestE5m2 / 2 && scaled <= kLargestE5m2;
    add(fmt::format("scale of {}", name), fits_e5m2 || (scaled > kLargestE4m3 / 2 && scaled <= kLargestE4m3),
        fmt::format("{:.6g} makes {:.6g} of the largest magnitude on all ranks, {:.6g}", scale, scaled, largest));
  };
  add_input(0, "q", inputs.q);
  add_input(1, "k", inputs.k);
  add_input(2, "v", inputs.v);
  if (problem.has_fp8_backward()) add_input(3, "dout", inputs.dout);
  return checks;
}

Check check_weight_probe(const Case& c, const Expected& expected, const RankView& view, const Results& results) {
  Check check = check_shard(expected, "weights", view.q, results.out, scalar_type_of(c.dtype), rules_of_probe(view));
  if (!check.ok)
    check.message = "with V = 1, out of a row is not the sum of its weights, which lse counts: " + check.message;
  return check;
}

std::vector<Check> check_gradients(const Case& c, const Expected& expected, const RankView& view,
                                   const Results& results) {
  const auto dtype = scalar_type_of(c.dtype);
  const CheckRules rules = rules_of(c, view);
  std::vector<Check> checks{check_shard(expected, "dq", view.q, results.dq, dtype, rules),
                            check_shard(expected, "dk", view.kv, results.dk, dtype, rules),
                            check_shard(expected, "dv", view.kv, results.dv, dtype, rules)};
  if (c.score_offset != 0) {
    checks.push_back(check_shard(expected, "offset dq", view.q, results.dq, dtype, rules));
    checks.push_back(check_shard(expected, "offset dk", view.kv, results.dk, dtype, rules));
  }
  if (c.bias && *c.bias != BiasShape::shape_111s) {
    checks.push_back(check_result(expected, "dbias", results.dbias, dtype, [&](const ExpectedTensor& tensor) {
      return view.bias.check(tensor, results.dbias, rules);
    }));
  }
  if (c.softmax == SoftmaxType::learnable) {
    checks.push_back(check_by_head(expected, "dsink", one_row(results.dq), results.dsink, rules));
  }
  return checks;
}

std::vector<Check> check_mask_probe(const Case& c, const Expected& expected, const RankView& view,
                                    const Results& results) {
  const CheckRules rules = rules_of_probe(view);
  const auto dtype = scalar_type_of(c.dtype);
  std::vector<Check> checks{check_shard(expected, "mask out", view.q, results.out, dtype, rules)};
  if (view.sharding.needs_lse || results.lse.defined()) {
    checks.push_back(check_by_head(expected, "mask lse", view.q, results.lse, rules));
  }
  if (c.training) checks.push_back(check_shard(expected, "mask dv", view.kv, results.dv, dtype, rules));
  return checks;
}

}  // namespace cp_pool::verify
