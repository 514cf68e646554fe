#include "cp_core/diagnosis/repetition.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cp_pool::diagnosis {
namespace {

bool same(const ResultsByRank& a, const ResultsByRank& b) {
  for (std::size_t rank = 0; rank < a.size(); ++rank) {
    for (const auto& [name, member] : verify::kResults) {
      if (!same_bits(a[rank].*member, b[rank].*member)) return false;
    }
  }
  return true;
}

// Whether the result is the correct one times a constant, within twice its bounds. Such a result has a wrong scale; if
// its numbers are small, it may look like one to which something was added.
bool is_scaled(const Given& given) {
  const at::Tensor judged = given.judged.view({-1, 1, 1});
  const at::Tensor value = given.value.nan_to_num(0.0, 0.0, 0.0).masked_fill(judged.logical_not(), 0.0);
  const at::Tensor right = given.right.nan_to_num(0.0, 0.0, 0.0).masked_fill(judged.logical_not(), 0.0);
  const double factor = value.mul(right).sum().item<double>() / std::max(right.square().sum().item<double>(), 1e-300);
  const at::Tensor bound = given.baseline.mul(verify::kAllowedBaselines).add(given.floor).mul(2 * std::abs(factor));
  return !verify::row_rms(value.sub(right.mul(factor))).gt(bound).any().item<bool>();
}

// Whether the wrong results of the later run are the correct results of the earlier run, or (added) the sum of both
// runs' correct results.
bool are_stale(const Bench& earlier, const Bench& later, bool added) {
  if (later.failing().empty()) return false;
  for (const Given& given : later.fits().given()) {
    if (std::ranges::find(later.failing(), given.name) == later.failing().end()) continue;
    const auto before = std::ranges::find(earlier.fits().given(), given.name, &Given::name);
    if (before == earlier.fits().given().end() || !before->right.sizes().equals(given.right.sizes())) return false;
    if (added && is_scaled(given)) return false;
    const at::Tensor predicted = added ? given.right.add(before->right) : before->right;
    // The errors of both steps may be in the sum.
    const at::Tensor error = verify::row_rms(given.value.sub(predicted).nan_to_num(1e30, 1e30, -1e30));
    const at::Tensor bound =
        given.baseline.add(before->baseline).mul(verify::kAllowedBaselines).add(given.floor).add(before->floor);
    if (error.masked_fill(given.judged.logical_not().unsqueeze(1), 0.0).gt(bound.mul(2)).any().item<bool>())
      return false;
  }
  return true;
}

}  // namespace

Repetition repetition_of(const Observed& observed) {
  std::vector<const ResultsByRank*> runs;
  const bool again_is_the_case = observed.again && observed.again->c.dtype == observed.the_case.c.dtype;
  if (again_is_the_case) runs.push_back(&observed.the_case.results);
  if (observed.again) runs.push_back(&observed.again->results);
  for (const ResultsByRank& results : observed.repeated) runs.push_back(&results);
  if (runs.size() < 2) return {.same_bits = true, .says = "the step was not repeated"};
  const auto others = std::ranges::count_if(runs, [&](const ResultsByRank* run) { return !same(*runs.front(), *run); });
  if (others == 0) return {.same_bits = true, .says = fmt::format("{} runs gave the same bits", runs.size())};
  return {.same_bits = false,
          .says = fmt::format("the same step gave different results in {} of {} runs", others, runs.size())};
}

std::string stale_results(const Bench& again, const Bench& other_seed) {
  for (const bool added : {false, true}) {
    if (!are_stale(again, other_seed, added)) continue;
    return fmt::format("a step returns the {} of the previous step{}", fmt::join(other_seed.failing(), ", "),
                       added ? ", added to its own results" : "");
  }
  return {};
}

}  // namespace cp_pool::diagnosis
