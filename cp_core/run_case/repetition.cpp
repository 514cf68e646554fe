#include "cp_core/run_case/repetition.h"

#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "cp_core/verify/check.h"
#include "cp_core/verify/check_outputs.h"
#include "cp_core/verify/negation.h"

namespace cp_pool {
namespace {

// What the ranks agree on: the largest of these.
constexpr int kEqual = 0;
constexpr int kDiffers = 1;
constexpr int kEarlierState = 2;

bool is_gradient(std::string_view tensor) {
  return tensor.starts_with('d');
}

std::string_view sentence_of(RepeatFault fault) {
  switch (fault) {
    case RepeatFault::none:
      return "";
    case RepeatFault::other_bits:
      return "does not repeat: the same step again gave other bits";
    case RepeatFault::sign:
      return "depends on the sign: with q, k, v and dout negated, results are not exactly the negated ones (an adapter "
             "whose rounding is not odd declares odd=False)";
    case RepeatFault::earlier_state:
      return "state of an earlier step: with q, k, v and dout negated, rows are as they were before";
  }
  return "";
}

}  // namespace

verify::Results Repetition::step(bool negated) {
  if (negated != negated_) verify::negate(shards_);
  negated_ = negated;
  verify::Results results = take_();
  if (negated) verify::negate(results);
  on_results_(results);
  return results;
}

std::vector<Check> Repetition::gradients_beyond_bounds(const verify::Results& results) const {
  std::vector<Check> beyond = verify::check_gradients(case_, *expected_, view_, results);
  std::erase_if(beyond, [](const Check& check) { return check.ok; });
  return beyond;
}

Repetition::Comparison Repetition::comparison(const verify::Results& first, const verify::Results& again) const {
  Comparison found;
  const auto differences = verify::differences(view_, first, again);
  const auto by_bounds = [&](const verify::Difference& one) { return !promise_.bits && is_gradient(one.tensor); };
  found.other_bits = std::ranges::any_of(differences, by_bounds);
  const auto has = [](const std::vector<Check>& checks, std::string_view tensor) {
    return std::ranges::find(checks, tensor, &Check::tensor) != checks.end();
  };
  std::vector<Check> before;
  std::vector<Check> after;
  if (found.other_bits) {
    before = gradients_beyond_bounds(first);
    after = gradients_beyond_bounds(again);
  }
  const auto add_text = [&](const std::string& text) { found.text += (found.text.empty() ? "" : ", ") + text; };
  std::set<std::string_view> as_earlier;
  for (const verify::Difference& difference : differences) {
    if (!by_bounds(difference)) add_text(difference.text);
    if (by_bounds(difference) && !has(after, difference.tensor)) continue;
    if (promise_.odd && difference.earlier > 0) as_earlier.insert(difference.tensor);
  }
  found.earlier = !as_earlier.empty();
  for (const Check& check : before) {
    if (!has(after, check.tensor)) add_text(check.tensor + " is within its bounds this time");
  }
  // What is as wrong in both steps does repeat.
  std::erase_if(after, [&](const Check& one) { return has(before, one.tensor) && !as_earlier.contains(one.tensor); });
  found.beyond = std::move(after);
  return found;
}

void Repetition::compare(const verify::Expected& expected, const verify::Results& first) {
  expected_ = &expected;
  first_ = &first;
  found_ = comparison(first, again_);
}

bool Repetition::differs_anywhere(Communicator& cp, const at::Device& device) {
  const int here = found_.earlier ? kEarlierState : found_.equal() ? kEqual : kDiffers;
  const int worst = largest_anywhere(here, cp, device, "comparison with the repeated step");
  if (worst == kDiffers) fault_ = RepeatFault::other_bits;
  if (worst == kEarlierState) fault_ = RepeatFault::earlier_state;
  return worst != kEqual;
}

// Both steps are taken again, the negated one first: results that alternate from step to step would otherwise look like
// results that depend on the sign.
bool Repetition::depends_on_the_sign() {
  const Comparison of_negated = comparison(again_, step(/*negated=*/true));
  const Comparison of_first = comparison(*first_, step(/*negated=*/false));
  return of_first.equal() && of_negated.equal();
}

void Repetition::explain(Communicator& cp, const at::Device& device) {
  if (fault_ != RepeatFault::other_bits || !promise_.odd) return;
  const bool repeats = depends_on_the_sign();
  if (!anywhere(!repeats, cp, device, "comparison with further steps")) fault_ = RepeatFault::sign;
}

std::string Repetition::remark() const {
  if (!promise_.remarks_other_bits || !found_.other_bits || !found_.equal()) return {};
  return "the repeated step gave gradients with other bits, within their bounds";
}

std::vector<Check> Repetition::failed_checks() const {
  std::vector<Check> failed = found_.beyond;
  for (Check& check : failed) {
    check.tensor = "repeated " + check.tensor;
    check.message = fmt::format("{}: {}", sentence_of(fault_), check.message);
  }
  if (!found_.text.empty()) {
    failed.insert(failed.begin(),
                  verify::failed_check("repeat", fmt::format("{}: {}", sentence_of(fault_), found_.text)));
  }
  return failed;
}

}  // namespace cp_pool
