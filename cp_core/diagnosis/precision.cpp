// Mistakes that only show as rounding: sums that are kept in 16 bits.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "cp_core/diagnosis/bench.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/simulation.h"
#include "cp_core/diagnosis/whole_results.h"

namespace cp_pool::diagnosis {
namespace {

using verify::Results;

struct Format {
  const char* name;
  at::ScalarType type;
  double unit_roundoff;
  DType dtype;
};
constexpr std::array kFormats{Format{"bf16", at::kBFloat16, 0x1p-8, DType::bf16},
                              Format{"fp16", at::kHalf, 0x1p-11, DType::fp16}};

// The errors of a result.
struct Errors {
  at::Tensor relative;     // [rows]: rms error relative to the size of the terms, for all judged rows that have terms
  double wrong_share = 0;  // the share of these rows that is wrong
  double bias = 0;         // the correlation of errors and values
};

std::optional<Errors> errors_of(const Bench& bench, const Given& given) {
  const at::Tensor sizes = given.floor.div(given.unit);
  const at::Tensor judged = sizes.gt(0.0).logical_and(given.judged.unsqueeze(1));
  if (!judged.any().item<bool>()) return std::nullopt;
  const at::Tensor error = given.value.sub(given.right).masked_fill(judged.logical_not().unsqueeze(-1), 0.0);
  if (!error.isfinite().all().item<bool>()) return std::nullopt;
  const at::Tensor right = given.right.masked_fill(judged.logical_not().unsqueeze(-1), 0.0);
  Errors errors;
  errors.relative = verify::row_rms(error).div(sizes).masked_select(judged);
  const at::Tensor wrong = bench.fits().errors(given).gt(1.0).masked_select(judged);
  errors.wrong_share = wrong.to(at::kDouble).mean().item<double>();
  const double norms = std::sqrt(error.square().sum().item<double>() * right.square().sum().item<double>());
  errors.bias = norms > 0 ? error.mul(right).sum().item<double>() / norms : 0;
  return errors;
}

// Whether the errors of a result amount to a few roundings of the format.
bool is_near(const std::optional<Errors>& errors, const Format& format) {
  constexpr double kMostRoundings = 4;
  return errors && errors->relative.max().item<double>() <= kMostRoundings * format.unit_roundoff;
}

std::vector<const Given*> wrong_results(const Bench& bench) {
  std::vector<const Given*> wrong;
  for (const Given& given : bench.fits().given()) {
    if (std::ranges::find(bench.failing(), given.name) != bench.failing().end()) wrong.push_back(&given);
  }
  return wrong;
}

// Whether numbers that were computed in fp32 can all be represented in a 16-bit format.
bool on_grid(const at::Tensor& values, at::ScalarType type) {
  const at::Tensor finite = values.masked_select(values.isfinite().logical_and(values.ne(0.0)));
  if (finite.numel() == 0) return false;
  // Allows for fp32 rounding in the numbers.
  constexpr double kOfFp32 = 0x1p-20;
  const at::Tensor distance = finite.sub(finite.to(type).to(at::kDouble)).abs();
  return distance.le(finite.abs().mul(kOfFp32)).to(at::kDouble).mean().item<double>() > 0.99;
}

// Returns out as it was before a sink joined.
at::Tensor before_sink(const at::Tensor& out, const Bench& bench) {
  const World& world = bench.world();
  const at::Tensor lse = joined_rows(world.observation->results, &Results::lse);
  if (!lse.defined() || !world.sink.defined()) return out;
  return out.div(world.sink.view({1, -1, 1}).sub(lse).exp().neg().add(1.0));
}

// Whether the result has errors of the size of the format's rounding and, unless the dtype of the case is as coarse,
// only numbers of the format in its wrong rows.
bool is_in(const Format& format, const Bench& bench, const Given& given) {
  if (!is_near(errors_of(bench, given), format)) return false;
  if (verify::floor_factor(bench.world().c().dtype) >= verify::floor_factor(format.dtype)) return true;
  // A row of a single part may have been rounded nowhere.
  const at::Tensor wrong = bench.fits().errors(given).gt(1.0);
  const at::Tensor value = joined_rows(bench.world().observation->results, given.member);
  const auto fits = [&](const at::Tensor& rows) { return on_grid(rows.index({wrong}), format.type); };
  return fits(value) || (given.member == &Results::out && fits(before_sink(value, bench)));
}

// gradients: dq, dk or dv are wrong and in the format. Else out is, and the gradients follow from it. The rounding of a
// 16-bit dtype may hide the mistake, so that a run without wrong results does not refute it.
bool is_kept_in(const Format& format, bool gradients, const Bench& bench) {
  const std::vector<const Given*> wrong = wrong_results(bench);
  if (bench.world().c().dtype != DType::fp32 && wrong.empty()) return true;
  const auto fits = [&](const Given* given) {
    if (gradients) return (given->member == &Results::dq || is_of_keys(given->member)) && is_in(format, bench, *given);
    return given->member != &Results::lse && (given->member != &Results::out || is_in(format, bench, *given));
  };
  const bool here = gradients ? !wrong.empty() && !bench.forward_fails()
                              : std::ranges::find(bench.failing(), "out") != bench.failing().end();
  return here && std::ranges::all_of(wrong, fits) && (gradients || bench.gradients_follow());
}

// The errors of several results have the size of rounding in most rows, and no preferred direction.
bool rounding_of(const Format& format, const Format* finer, const Bench& bench) {
  const std::vector<const Given*> wrong = wrong_results(bench);
  if (wrong.size() < 2) return false;
  constexpr double kMostRows = 0.3;
  constexpr double kSpread = 10;
  constexpr double kBias = 0.3;
  double largest = 0;
  for (const Given* const given : wrong) {
    const auto errors = errors_of(bench, *given);
    if (!is_near(errors, format)) return false;
    const double most = quantile(errors->relative, 0.95);
    if (errors->wrong_share < kMostRows || most > kSpread * quantile(errors->relative, 0.6)) return false;
    if (given->member != &Results::lse && std::abs(errors->bias) > kBias) return false;
    largest = std::max(largest, most);
  }
  return finer == nullptr || largest > 2 * finer->unit_roundoff;
}

// Only the lse is wrong, by small errors that do not grow with it.
bool approximate_lse(const Bench& bench) {
  constexpr double kMost = 0x1p-13;
  const std::vector<const Given*> wrong = wrong_results(bench);
  if (wrong.size() != 1 || wrong.front()->member != &Results::lse) return false;
  const Given& lse = *wrong.front();
  const at::Tensor error = lse.value.sub(lse.right).masked_fill(lse.value.eq(lse.right), 0.0);  // both may be infinite
  return error.masked_fill_(lse.judged.logical_not().view({-1, 1, 1}), 0.0).abs().max().item<double>() <= kMost;
}

}  // namespace

Hypotheses precision_hypotheses(const World& /*world*/, const Symptoms& /*symptoms*/) {
  Hypotheses all;
  const auto add = [&all](const char* id, std::string says, std::function<bool(const Bench&)> shows) {
    all.push_back({.id = id, .says = std::move(says), .shows = std::move(shows)});
  };
  for (const Format& format : kFormats) {
    add("merged_in_16_bits", fmt::format("out is kept in {} between parts", format.name),
        [format](const Bench& bench) { return is_kept_in(format, /*gradients=*/false, bench); });
    add("gradients_in_16_bits", fmt::format("gradients are summed in {}", format.name),
        [format](const Bench& bench) { return is_kept_in(format, /*gradients=*/true, bench); });
  }
  add("precision_alone", "all errors look like rounding: sums, scores or weights in bf16 would cause such errors",
      [](const Bench& bench) { return rounding_of(kFormats[0], &kFormats[1], bench); });
  add("precision_alone",
      "only the lse is wrong, by less than rounding to 16 bits would cause: exponentials or a logarithm are "
      "approximate",
      approximate_lse);
  add("precision_alone", "all errors look like rounding: sums, scores or weights in fp16 would cause such errors",
      [](const Bench& bench) { return rounding_of(kFormats[1], nullptr, bench); });
  return all;
}

}  // namespace cp_pool::diagnosis
