#include "driver/cli/commands/round_book.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "cases/case_outcome.h"
#include "driver/reporters/text_format.h"

namespace cp_pool {

namespace {

std::size_t count_in(const std::set<std::string>& ids, const std::set<std::string>& others) {
  return static_cast<std::size_t>(std::ranges::count_if(ids, [&](const auto& id) { return others.contains(id); }));
}

// Counts runs of cases: "2 failed, 101 passed, 3 skipped, 1 not judged". Zero counts are left out, except that of
// passes.
std::string counts_text(const RunFinished& round) {
  const OutcomeCounts& counts = round.counts;
  std::size_t failed = round.strict_passes;
  std::size_t not_judged = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto outcome = static_cast<CaseOutcome>(i);
    if (is_failure(outcome)) {
      failed += counts[i];
    } else if (!went_well(outcome)) {
      not_judged += counts[i];
    }
  }
  failed -= round.expected_failures;
  std::string text = failed > 0 ? fmt::format("{} failed, ", failed) : "";
  text += fmt::format("{} passed", counts.at(static_cast<std::size_t>(CaseOutcome::pass)) - round.strict_passes);
  if (round.expected_failures > 0) text += fmt::format(", {} failed as expected", round.expected_failures);
  const std::size_t skipped = counts.at(static_cast<std::size_t>(CaseOutcome::skip));
  if (skipped > 0) text += fmt::format(", {} skipped", skipped);
  if (not_judged > 0) text += fmt::format(", {} not judged", not_judged);
  return text;
}

}  // namespace

std::vector<Item> RoundBook::failures_first(std::vector<Item> cases) const {
  std::ranges::stable_partition(cases, [&](const Item& named) { return failing_.contains(named.id); });
  return cases;
}

void RoundBook::on_event(const Event& event) {
  if (const auto* finished = std::get_if<RunFinished>(&event)) round_.finished = *finished;
  const auto* finished = std::get_if<CaseFinished>(&event);
  if (finished == nullptr) return;
  if (is_failure(*finished)) {
    round_.failed.insert(finished->id);
  } else if (went_well(*finished)) {
    round_.passed.insert(finished->id);
  } else {
    round_.others.insert(finished->id);
  }
}

std::string RoundBook::complete() {
  take_over();
  // Forgets cases that are no longer selected.
  std::erase_if(failing_, [&](const std::string& id) {
    return !round_.failed.contains(id) && !round_.passed.contains(id) && !round_.others.contains(id);
  });
  std::string text;
  if (round_.finished) {
    text = fmt::format("{} in {}", counts_text(*round_.finished), format_duration(round_.finished->duration_ms));
  }
  if (last_time_) {
    text += fmt::format(" (fixed: {}, new failures: {})", count_in(*last_time_, round_.passed),
                        round_.failed.size() - count_in(round_.failed, *last_time_));
  }
  last_time_ = failing_;
  return text;
}

void RoundBook::take_over() {
  std::erase_if(round_.passed, [&](const std::string& id) { return round_.failed.contains(id); });
  std::erase_if(failing_, [&](const std::string& id) { return round_.passed.contains(id); });
  failing_.insert(round_.failed.begin(), round_.failed.end());
}

}  // namespace cp_pool
