// Mistakes in the precision or the range of numbers: sums in 16 bits, exponentials that overflow or vanish.
#include <algorithm>
#include <cmath>
#include <optional>

#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/hypothesis_check.h"
#include "cp_core/diagnosis/simulated_step.h"

namespace cp_pool::diagnosis {
namespace {

using verify::Results;

// The errors of a result.
struct Errors {
  at::Tensor relative;     // [rows]: rms error relative to the size of the terms, for all judged rows that have terms
  double wrong_share = 0;  // the share of these rows that is wrong
  double bias = 0;         // the correlation of errors and values
};

std::optional<Errors> errors_of(const HypothesisCheck& check, const Given& given) {
  const at::Tensor sizes = given.floor.div(given.unit);
  const at::Tensor judged = sizes.gt(0.0).logical_and(given.judged.unsqueeze(1));
  if (!judged.any().item<bool>()) return std::nullopt;
  const at::Tensor error = given.value.sub(given.right).masked_fill(judged.logical_not().unsqueeze(-1), 0.0);
  if (!error.isfinite().all().item<bool>()) return std::nullopt;
  const at::Tensor right = given.right.masked_fill(judged.logical_not().unsqueeze(-1), 0.0);
  Errors errors;
  errors.relative = verify::row_rms(error).div(sizes).masked_select(judged);
  const at::Tensor wrong = check.fits().errors(given).gt(1.0).masked_select(judged);
  errors.wrong_share = wrong.to(at::kDouble).mean().item<double>();
  const double norms = std::sqrt(error.square().sum().item<double>() * right.square().sum().item<double>());
  errors.bias = norms > 0 ? error.mul(right).sum().item<double>() / norms : 0;
  return errors;
}

// Whether the errors of a result amount to a few roundings of the format.
bool is_near(const std::optional<Errors>& errors, DType format) {
  constexpr double kMostRoundings = 4;
  return errors && errors->relative.max().item<double>() <= kMostRoundings * verify::unit_roundoff(format);
}

std::vector<const Given*> wrong_results(const HypothesisCheck& check) {
  std::vector<const Given*> wrong;
  for (const Given& given : check.fits().given()) {
    if (check.fails(given.name)) wrong.push_back(&given);
  }
  return wrong;
}

// Whether numbers that were computed in fp32 can all be represented in a 16-bit format.
bool on_grid(const at::Tensor& values, DType format) {
  const at::Tensor finite = values.masked_select(values.isfinite().logical_and(values.ne(0.0)));
  if (finite.numel() == 0) return false;
  // Allows for fp32 rounding in the numbers.
  constexpr double kOfFp32 = 0x1p-20;
  const at::Tensor distance = finite.sub(finite.to(verify::scalar_type_of(format)).to(at::kDouble)).abs();
  return distance.le(finite.abs().mul(kOfFp32)).to(at::kDouble).mean().item<double>() > 0.99;
}

// Returns out as it was before a sink joined.
at::Tensor before_sink(const at::Tensor& out, const HypothesisCheck& check) {
  const DenseProblem& dense = check.dense();
  const at::Tensor lse = joined_rows(dense.observation->results, &Results::lse);
  if (!lse.defined() || !dense.sink.defined()) return out;
  return out.div(dense.sink.view({1, -1, 1}).sub(lse).exp().neg().add(1.0));
}

// Whether the result has errors of the size of the format's rounding and, unless the dtype of the case is as coarse,
// only numbers of the format in its wrong rows.
bool is_in(DType format, const HypothesisCheck& check, const Given& given) {
  if (!is_near(errors_of(check, given), format)) return false;
  if (verify::floor_factor(check.dense().c().dtype) >= verify::floor_factor(format)) return true;
  // A row of a single part may have been rounded nowhere.
  const at::Tensor wrong = check.fits().errors(given).gt(1.0);
  const at::Tensor value = joined_rows(check.dense().observation->results, given.member);
  const auto fits = [&](const at::Tensor& rows) { return on_grid(rows.index({wrong}), format); };
  return fits(value) || (given.member == &Results::out && fits(before_sink(value, check)));
}

// gradients: dq, dk or dv are wrong and in the format. Else out is, and the gradients follow from it. The rounding of a
// 16-bit dtype may hide the mistake, so that a run without wrong results does not refute it.
bool is_kept_in(DType format, bool gradients, const HypothesisCheck& check) {
  const std::vector<const Given*> wrong = wrong_results(check);
  if (check.dense().c().dtype != DType::fp32 && wrong.empty()) return true;
  const auto fits = [&](const Given* given) {
    if (gradients) return (given->member == &Results::dq || is_of_keys(given->member)) && is_in(format, check, *given);
    return given->member != &Results::lse && (given->member != &Results::out || is_in(format, check, *given));
  };
  const bool here = gradients ? !wrong.empty() && !check.forward_fails() : check.fails("out");
  return here && std::ranges::all_of(wrong, fits) && (gradients || check.gradients_follow());
}

// The errors of several results have the size of rounding in most rows, and no preferred direction.
bool rounding_of(DType format, double more_than, const HypothesisCheck& check) {
  const std::vector<const Given*> wrong = wrong_results(check);
  if (wrong.size() < 2) return false;
  constexpr double kMostRows = 0.3;
  constexpr double kSpread = 10;
  constexpr double kBias = 0.3;
  double largest = 0;
  for (const Given* const given : wrong) {
    const auto errors = errors_of(check, *given);
    if (!is_near(errors, format)) return false;
    const double most = quantile(errors->relative, 0.95);
    if (errors->wrong_share < kMostRows || most > kSpread * quantile(errors->relative, 0.6)) return false;
    if (given->member != &Results::lse && std::abs(errors->bias) > kBias) return false;
    largest = std::max(largest, most);
  }
  return largest > more_than;
}

// Only the lse is wrong, by small errors that do not grow with it.
bool approximate_lse(const HypothesisCheck& check) {
  constexpr double kMost = 0x1p-13;
  const std::vector<const Given*> wrong = wrong_results(check);
  if (wrong.size() != 1 || wrong.front()->member != &Results::lse) return false;
  const Given& lse = *wrong.front();
  const at::Tensor error = lse.value.sub(lse.right).masked_fill(lse.value.eq(lse.right), 0.0);  // both may be infinite
  return error.masked_fill_(lse.judged.logical_not().view({-1, 1, 1}), 0.0).abs().max().item<double>() <= kMost;
}

// exp(x) in fp32 overflows above x = 88.72, loses bits below -87.3, and is 0 below -103.97.
constexpr double kMayOverflow = 87.5;
constexpr double kOverflows = 89.5;
constexpr double kMayVanish = -83;
constexpr double kVanishes = -105;
// At least this many rows that must be wrong, and rows that must not, are needed for a decision.
constexpr std::int64_t kRowsToTell = 3;

// bool [q rows, heads]
struct Exposed {
  at::Tensor may;    // the exponential of some score or of some part's lse may leave the range of fp32
  at::Tensor must;   // the exponential of the row's lse leaves it
  at::Tensor parts;  // the row sees keys of several ranks
  at::Tensor times;  // fp64, pairs
};

Exposed exposed_rows(const DenseProblem& dense) {
  const SimulatedStep right(dense);
  const Forward forward = run_forward(right);
  const at::Tensor& times = right.forward.times;
  const at::Tensor seen = forward.scores.masked_fill(times.eq(0.0), -kInfinity);  // [heads, q rows, kv rows]
  const at::Tensor total = seen.logsumexp({-1});
  at::Tensor may = seen.amax(-1).gt(kMayOverflow).logical_or(total.gt(kMayOverflow));
  at::Tensor parts = at::zeros_like(total);
  for (int rank = 0; rank < dense.ranks; ++rank) {
    const at::Tensor own = dense.kv_rows.rank.eq(rank);
    const at::Tensor of_rank = seen.masked_fill(own.logical_not(), -kInfinity);
    const at::Tensor has_keys = of_rank.amax(-1).gt(-kInfinity);
    for (const std::int64_t half : {0, 1}) {
      const at::Tensor of_half = of_rank.masked_fill(dense.kv_rows.half.ne(half), -kInfinity).amax(-1);
      may.logical_or_(of_half.gt(-kInfinity).logical_and(of_half.lt(kMayVanish)));
    }
    parts.add_(has_keys.to(parts.scalar_type()));
  }
  const at::Tensor must = total.gt(kOverflows).logical_or(total.lt(kVanishes));
  return {.may = may.t(), .must = must.logical_and(total.gt(-kInfinity)).t(), .parts = parts.gt(1).t(), .times = times};
}

// bool [kv rows, kv heads]: whether one of these queries sees the key.
at::Tensor keys_of(const at::Tensor& queries, const at::Tensor& times, std::int64_t kv_heads) {
  const at::Tensor by_head = times.t().ne(0.0).to(at::kDouble).matmul(queries.to(at::kDouble));  // [kv rows, heads]
  return by_head.view({by_head.size(0), kv_heads, -1}).sum(-1).gt(0.0);
}

// Whether the wrong rows are exactly the exposed ones, and some of them hold NaN, infinities or only zeros.
bool exposed_are_wrong(const HypothesisCheck& check, const Exposed& exposed) {
  const DenseProblem& dense = check.dense();
  if (exposed.must.sum().item<std::int64_t>() < kRowsToTell) return false;
  const at::Tensor keys = keys_of(exposed.may, exposed.times, dense.c().kv_heads);
  at::Tensor wrong_queries = at::zeros_like(exposed.may);
  bool extreme = false;
  for (const Given& given : check.fits().given()) {
    const at::Tensor wrong = check.fits().errors(given).gt(1.0);
    if (!wrong.any().item<bool>()) continue;
    if (given.member == &Results::max_logit) return false;
    if (given.member == &Results::dbias || given.member == &Results::dsink) continue;
    const bool of_keys = is_of_keys(given.member);
    const at::Tensor& allowed = of_keys ? keys : exposed.may;
    if (wrong.logical_and(allowed.logical_not()).any().item<bool>()) return false;
    const at::Tensor none = given.value.isfinite().all(-1).logical_not().logical_or(given.value.eq(0.0).all(-1));
    extreme = extreme || none.logical_and(wrong).any().item<bool>();
    if (!of_keys) wrong_queries = wrong_queries.logical_or(wrong);
  }
  return extreme && !exposed.must.logical_and(wrong_queries.logical_not()).any().item<bool>();
}

// Whether the wrong rows are exactly those whose exponentials leave the range of fp32.
bool out_of_range(const HypothesisCheck& check) {
  Exposed exposed = exposed_rows(check.dense());
  // If the mistake is in the merge, only rows of several parts are wrong. If no row has several parts, it must be in
  // the softmax.
  const at::Tensor merged = exposed.must.logical_and(exposed.parts);
  if (merged.any().item<bool>()) exposed.must = merged;
  // With an offset, every row may be exposed.
  const bool tells =
      check.dense().problem.has_offset() || exposed.may.logical_not().sum().item<std::int64_t>() >= kRowsToTell;
  return tells && exposed_are_wrong(check, exposed);
}

// Whether the wrong rows are those whose scores all lie far below 0.
bool starts_too_high(const HypothesisCheck& check) {
  const DenseProblem& dense = check.dense();
  return dense.problem.score_offset < 0 && exposed_are_wrong(check, exposed_rows(dense));
}

class Precisions : public Subject {
 public:
  Precisions(const DenseProblem& dense, const Symptoms& symptoms) : Subject(dense, symptoms) {
    shows("max_not_subtracted",
          "exponentials are taken of scores or of an lse without subtracting the maximum: exactly the rows whose "
          "exponentials leave the range of fp32 are wrong",
          out_of_range);
    shows("max_starts_too_high",
          "the running maximum of the softmax starts at a finite number instead of minus infinity: the rows whose "
          "scores all lie far below it are wrong",
          starts_too_high);
    for (const DType format : {DType::bf16, DType::fp16}) {
      shows("merged_in_16_bits", fmt::format("out is kept in {} between parts", to_string(format)),
            [format](const HypothesisCheck& check) { return is_kept_in(format, /*gradients=*/false, check); });
      shows("gradients_in_16_bits", fmt::format("gradients are summed in {}", to_string(format)),
            [format](const HypothesisCheck& check) { return is_kept_in(format, /*gradients=*/true, check); });
    }
    like_rounding(DType::bf16, 2 * verify::unit_roundoff(DType::fp16));
    shows("precision_alone",
          "only the lse is wrong, by less than rounding to 16 bits would cause: exponentials or a logarithm are "
          "approximate",
          approximate_lse);
    like_rounding(DType::fp16, 0);
  }

 private:
  void like_rounding(DType format, double more_than) {
    shows("precision_alone",
          fmt::format("all errors look like rounding: sums, scores or weights in {} would cause such errors",
                      to_string(format)),
          [=](const HypothesisCheck& check) { return rounding_of(format, more_than, check); });
  }
};

}  // namespace

Hypotheses precision_hypotheses(const DenseProblem& dense, const Symptoms& symptoms) {
  return Precisions(dense, symptoms).all();
}

}  // namespace cp_pool::diagnosis
