#include "driver/reporters/case_tries.h"

#include <algorithm>

#include <fmt/format.h>

#include "driver/reporters/case_runs.h"
#include "driver/reporters/text_format.h"

namespace cp_pool {

namespace {

constexpr std::size_t kMostFlakyListed = 20;

}  // namespace

void CaseTries::add(const CaseTried& event) {
  tries_[event.index].push_back(event);
}

void CaseTries::add(const CaseFinished& event) {
  const std::vector<CaseFinished>& tries = of(event.index);
  if (event.flaky) {
    flaky_.push_back(fmt::format("  {}: {}", case_name(event), tries_text(event, tries)));
  } else if (!tries.empty() && event.outcome != CaseOutcome::pass) {
    ++in_vain_;
  }
}

const std::vector<CaseFinished>& CaseTries::of(std::size_t index) const {
  static const std::vector<CaseFinished> none;
  const auto found = tries_.find(index);
  return found == tries_.end() ? none : found->second;
}

std::string CaseTries::text() const {
  std::string out;
  if (!flaky_.empty()) {
    out += fmt::format("{} flaky: passed on a later try (--retries)\n", flaky_.size());
    const std::size_t shown = std::min(flaky_.size(), kMostFlakyListed);
    for (std::size_t i = 0; i < shown; ++i) out += flaky_[i] + '\n';
    if (shown < flaky_.size()) out += fmt::format("  and {} more\n", flaky_.size() - shown);
  }
  if (in_vain_ > 0) out += fmt::format("{} run again (--retries) without a pass\n", count_of(in_vain_, "case"));
  return out;
}

std::string tries_text(const CaseFinished& event, const std::vector<CaseFinished>& tries) {
  if (tries.empty()) return event.flaky ? "flaky" : "";
  std::string text = event.flaky ? "flaky: " : "";
  for (const CaseFinished& tried : tries) text += fmt::format("{}, ", to_string(tried.outcome));
  return text + fmt::format("then {} on try {}", to_string(event.outcome), tries.size() + 1);
}

}  // namespace cp_pool
