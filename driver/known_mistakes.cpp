#include "driver/known_mistakes.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace cp_pool {

namespace {

bool is_power_of_four(std::size_t number) {
  return std::has_single_bit(number) && std::countr_zero(number) % 2 == 0;
}

}  // namespace

void KnownMistakes::note(const Diagnosis& diagnosis, const std::string& case_id) {
  if (diagnosis.certainty == Certainty::unknown) return;
  if (diagnosis.certainty == Certainty::likely) ++likely_answers_;
  KnownMistake found{.certainty = diagnosis.certainty, .ids = {diagnosis.id}, .case_id = case_id};
  found.ids.insert(found.ids.end(), diagnosis.others.begin(), diagnosis.others.end());
  const bool again = std::ranges::any_of(known_, [&](const KnownMistake& earlier) {
    const auto is_found = [&](const std::string& id) { return std::ranges::find(found.ids, id) != found.ids.end(); };
    return earlier.certainty <= found.certainty && std::ranges::all_of(earlier.ids, is_found);
  });
  if (again) return;
  known_.insert(std::ranges::upper_bound(known_, found.certainty, {}, &KnownMistake::certainty), std::move(found));
  if (known_.size() > kMost) known_.pop_back();
}

std::vector<KnownMistake> KnownMistakes::for_next_case() const {
  std::vector<KnownMistake> out = known_;
  if (is_power_of_four(likely_answers_)) {
    std::erase_if(out, [](const KnownMistake& one) { return one.certainty == Certainty::likely; });
  }
  return out;
}

}  // namespace cp_pool
