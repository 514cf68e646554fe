#include "cp_core/run_case/repetition.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "cp_core/comm/agreement.h"
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

Repetition::Comparison Repetition::comparison(const verify::Results& first, const verify::Results& again) const {
  Comparison found;
  if (!promise_.bits && case_.training) {
    found.beyond = verify::check_gradients(case_, *expected_, view_, again);
    std::erase_if(found.beyond, [](const Check& check) { return check.ok; });
  }
  for (const verify::Difference& difference : verify::differences(view_, first, again)) {
    const bool by_bounds = !promise_.bits && is_gradient(difference.tensor);
    found.other_bits = found.other_bits || by_bounds;
    if (by_bounds && std::ranges::find(found.beyond, difference.tensor, &Check::tensor) == found.beyond.end()) continue;
    found.earlier = found.earlier || (promise_.odd && difference.earlier > 0);
    if (!by_bounds) found.text += (found.text.empty() ? "" : ", ") + difference.text;
  }
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
  return of_first.equal() && of_negated.text.empty() && of_negated.beyond.empty() == found_.beyond.empty();
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
