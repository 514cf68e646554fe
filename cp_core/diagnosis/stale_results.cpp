// Recognises results that are those of an earlier step.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cp_core/diagnosis/hypothesis_check.h"

namespace cp_pool::diagnosis {
namespace {

// Whether the wrong results of the later run are the correct results of the earlier run, or (added) the sum of both
// runs' correct results. Gradients may instead follow from such an out and lse.
bool are_stale(const HypothesisCheck& earlier, const HypothesisCheck& later, bool added) {
  if (later.failing().empty()) return false;
  const bool gradients_follow = later.forward_fails() && later.gradients_follow();
  for (const Given& given : later.fits().given()) {
    if (!later.fails(given.name)) continue;
    if (gradients_follow && !is_of_forward(given.member)) continue;
    const auto before = std::ranges::find(earlier.fits().given(), given.name, &Given::name);
    if (before == earlier.fits().given().end() || !before->right.sizes().equals(given.right.sizes())) return false;
    // A result that is the correct one times a number may, if its numbers are small, look like one to which something
    // was added.
    if (added && constant_of(given)) return false;
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

std::string stale_results(const HypothesisCheck& again, const HypothesisCheck& other_seed) {
  for (const bool added : {false, true}) {
    if (!are_stale(again, other_seed, added)) continue;
    return fmt::format("a step returns the {} of the previous step{}", fmt::join(other_seed.failing(), ", "),
                       added ? ", added to its own results" : "");
  }
  return {};
}

bool have_equal_rows(const HypothesisCheck& one, const HypothesisCheck& other) {
  return std::ranges::any_of(one.fits().given(), [&](const Given& given) {
    const auto same = std::ranges::find(other.fits().given(), given.name, &Given::name);
    if (is_of_forward(given.member) || same == other.fits().given().end()) return false;
    if (!same->value.sizes().equals(given.value.sizes())) return false;
    const at::Tensor equal = given.value.eq(same->value).all(-1).logical_and(given.value.ne(0.0).any(-1));
    return equal.logical_and(given.judged.unsqueeze(1)).any().item<bool>();
  });
}

}  // namespace cp_pool::diagnosis
