#include "cp_core/diagnosis/fit.h"

#include <algorithm>
#include <cmath>

#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

namespace cp_pool::diagnosis {
namespace {

// Factor on the bound of a row that a mistake changes. That bound comes from the magnitudes of a simulation, whose sums
// have another order and another number of roundings than those of the implementation.
constexpr double kSlack = 2;

// plausible() accepts a remaining error of kNearBounds times the bound, or of kNearErrors times the error to be
// explained.
constexpr double kNearBounds = 8;
constexpr double kNearErrors = 0.3;

at::Tensor both_equal(const at::Tensor& a, const at::Tensor& b) {
  return a.eq(b).logical_or(a.isnan().logical_and(b.isnan()));
}

// Returns the root mean square of a - b for each row and head; infinite if one of the two has an element that is not
// finite and the other does not have the same.
at::Tensor distance(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor difference = at::where(both_equal(a, b), 0.0, a.sub(b));
  return verify::row_rms(difference).nan_to_num(kInfinity, kInfinity);
}

// Selects the canonical row of each row. canonical: -1 = padding, which is filled with `padding`.
at::Tensor of_canonical_rows(const at::Tensor& of_canonical, const at::Tensor& canonical, double padding) {
  std::vector<std::int64_t> sizes = of_canonical.sizes().vec();
  sizes[0] = canonical.size(0);
  at::Tensor rows = at::zeros(sizes, of_canonical.options()).fill_(padding);
  const at::Tensor valid = canonical.ge(0).nonzero().flatten();
  return rows.index_copy_(0, valid, of_canonical.index_select(0, canonical.index_select(0, valid)));
}

double total_of(const Given& given, const at::Tensor& errors) {
  return errors.masked_fill(given.judged.logical_not().unsqueeze(1), 0.0)
      .square()
      .clamp_max_(1e60)
      .sum()
      .item<double>();
}

}  // namespace

std::optional<Constant> constant_of(const Given& given) {
  const at::Tensor judged = given.judged.view({-1, 1, 1});
  const at::Tensor finite = given.value.isfinite().logical_and(given.right.isfinite()).logical_and(judged);
  if (judged.logical_and(both_equal(given.value, given.right).logical_or(finite).logical_not()).any().item<bool>()) {
    return std::nullopt;
  }
  const at::Tensor value = at::where(finite, given.value, 0.0);
  const at::Tensor right = at::where(finite, given.right, 0.0);
  const at::Tensor bound = given.baseline.mul(verify::kAllowedBaselines).add(given.floor).mul(2);
  const auto fits = [&](const Constant& constant) {
    const at::Tensor predicted = right.mul(constant.factor).add(constant.shift);
    const at::Tensor error = verify::row_rms(at::where(finite, value.sub(predicted), 0.0));
    return !error.gt(bound.mul(std::abs(constant.factor))).any().item<bool>();
  };
  if (given.member == &verify::Results::lse) {
    const double count = std::max(finite.sum().item<double>(), 1.0);
    const Constant shifted{.shift = value.sub(right).sum().item<double>() / count};
    if (fits(shifted)) return shifted;
  }
  // Each row weighs as much as its bound is small.
  const at::Tensor weight = at::where(finite, bound.reciprocal().nan_to_num(0.0, 0.0).unsqueeze(-1), 0.0);
  const at::Tensor weighed = right.mul(weight);
  const double square = std::max(weighed.square().sum().item<double>(), 1e-300);
  const Constant scaled{.factor = value.mul(weight).mul(weighed).sum().item<double>() / square,
                        .precision = std::sqrt(weight.count_nonzero().item<double>() / square)};
  return fits(scaled) ? std::optional(scaled) : std::nullopt;
}

double quantile(const at::Tensor& values, double share) {
  if (values.numel() == 0) return 0;
  const at::Tensor sorted = std::get<0>(values.flatten().sort());
  const auto at = static_cast<std::int64_t>(share * static_cast<double>(sorted.numel() - 1));
  return sorted[at].item<double>();
}

Given Fits::of_rows(const Given& given, const at::Tensor& rows, const at::Tensor& concerns) const {
  Given some = given;
  some.judged = given.judged.logical_and(concerns);
  for (const auto part :
       {&Given::value, &Given::right, &Given::baseline, &Given::floor, &Given::judged, &Given::rank}) {
    some.*part = (some.*part).index_select(0, rows);
  }
  prepare(some);
  return some;
}

void Fits::prepare(Given& given) const {
  const at::Tensor bound = given.baseline.mul(verify::kAllowedBaselines).add_(given.floor).mul_(bound_factor_);
  given.accepted = std::max(total_of(given, bound.mul(kNearBounds)),
                            kNearErrors * kNearErrors * total_of(given, distance(given.value, given.right)));
}

Fits::Fits(const DenseProblem& dense) : bound_factor_(dense.observation->sharding.bound_factor) {
  const Observation& of = *dense.observation;
  const auto ranks = at::arange(dense.ranks, at::kLong);
  const at::Tensor one_row = at::zeros({dense.ranks}, at::kLong);
  for (const auto& [name, member] : verify::kResults) {
    const at::Tensor value = joined_rows(of.results, member);
    if (!value.defined() || (member == &verify::Results::max_logit && !of.c.max_logit)) continue;
    for (const verify::ExpectedTensor& expected : of.expected->tensors) {
      if (!expected.name.ends_with(name)) continue;  // "offset dq" is a part of dq
      if (member == &verify::Results::dbias) {
        add_dbias(dense, expected, value);
      } else if (member == &verify::Results::max_logit || member == &verify::Results::dsink) {
        add(dense, expected, member, value, one_row, ranks);
      } else {
        const Side& side = is_of_keys(member) ? dense.kv_rows : dense.q_rows;
        add(dense, expected, member, value, side.canonical, side.rank);
      }
    }
  }
}

void Fits::add_dbias(const DenseProblem& dense, const verify::ExpectedTensor& expected, const at::Tensor& value) {
  const Observation& of = *dense.observation;
  std::vector<std::int64_t> canonical;
  std::vector<std::int64_t> ranks;
  const std::int64_t valid = std::ranges::max(of.lengths.valid_q);
  for (int rank = 0; rank < dense.ranks; ++rank) {
    const std::int64_t count = of.results[static_cast<std::size_t>(rank)].dbias.size(0);
    const std::int64_t* const own =
        dense.q_rows.position.const_data_ptr<std::int64_t>() + dense.q_rows.first[static_cast<std::size_t>(rank)];
    for (std::int64_t row = 0; row < count; ++row) {
      const std::int64_t position = of.c.layout == Layout::thd ? row : own[row];
      canonical.push_back(position < valid ? position : -1);
      ranks.push_back(rank);
    }
  }
  const std::int64_t columns = std::ranges::max(of.lengths.valid_kv);
  if (value.size(2) < columns) return;
  add(dense, expected, &verify::Results::dbias, value.narrow(2, 0, columns), index_tensor(canonical),
      index_tensor(ranks));
}

void Fits::add(const DenseProblem& dense, const verify::ExpectedTensor& expected, at::Tensor WholeResults::* member,
               const at::Tensor& value, const at::Tensor& canonical, const at::Tensor& rank) {
  const Observation& of = *dense.observation;
  if (value.size(0) != canonical.size(0) || value.size(1) != expected.value.size(1)) return;
  const bool fp32 = member == &verify::Results::lse || member == &verify::Results::max_logit;
  const at::Tensor right =
      of_canonical_rows(expected.value, canonical, member == &verify::Results::lse ? -kInfinity : 0.0);
  if (right.sizes() != value.sizes()) return;
  Given given{.name = expected.name,
              .member = member,
              .part = expected.part,
              .value = verify::row_part(value, expected.part),
              .right = verify::row_part(right, expected.part)};
  given.baseline = of_canonical_rows(expected.baseline_error, canonical, 0.0);
  given.floor =
      of_canonical_rows(expected.bound, canonical, 0.0).sub(given.baseline, verify::kAllowedBaselines).clamp_min_(0.0);
  given.judged = canonical.ge(0);
  if (of.sharding.judges_padding) given.judged = at::ones_like(given.judged);
  given.rank = rank;
  given.unit = verify::floor_factor(fp32 ? DType::fp32 : of.c.dtype);
  const at::Tensor has_floor = given.floor.gt(0.0);
  given.typical_baseline = quantile(given.baseline.div(given.floor).masked_select(has_floor), /*share=*/0.9);
  prepare(given);
  given_.push_back(std::move(given));
}

at::Tensor Fits::errors(const Given& given, const at::Tensor& predicted, const at::Tensor& magnitude) const {
  const at::Tensor part = predicted.defined() ? verify::row_part(predicted, given.part) : given.right;
  const at::Tensor error = distance(given.value, part);
  at::Tensor bound = given.baseline.mul(verify::kAllowedBaselines).add_(given.floor);
  if (magnitude.defined()) {
    const at::Tensor floor = verify::row_rms(verify::row_part(magnitude, given.part)).mul_(given.unit);
    // A correct row without terms has the bound 0.
    const at::Tensor changed =
        distance(part, given.right).gt(bound.mul(0.01)).logical_or(bound.eq(0.0).logical_and(floor.gt(0.0)));
    const at::Tensor other = floor.mul(1 + verify::kAllowedBaselines * given.typical_baseline).mul_(kSlack);
    bound = at::where(changed, other, bound);
  }
  bound = bound.mul(bound_factor_);
  const at::Tensor ratio = at::where(error.eq(0.0), 0.0, error.div(bound)).nan_to_num(kInfinity, kInfinity);
  return ratio.masked_fill(given.judged.logical_not().unsqueeze(1), 0.0);
}

bool Fits::plausible(const Given& given, const at::Tensor& predicted) {
  return total_of(given, distance(given.value, verify::row_part(predicted, given.part))) <= given.accepted;
}

}  // namespace cp_pool::diagnosis
