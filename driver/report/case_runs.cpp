#include "driver/report/case_runs.h"

#include <fmt/format.h>

#include "driver/report/failure_text.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

constexpr std::size_t kMostListed = 20;

}  // namespace

std::string case_name(const CaseFinished& event) {
  return event.runs > 1 ? fmt::format("{} (run {} of {})", event.id, event.run, event.runs) : event.id;
}

std::string suite_of(const CaseFinished& event) {
  std::string suite = event.payload->suite();
  return suite.empty() ? "cases" : suite;
}

std::string first_run_text(const CaseFinished& event) {
  if (!event.first_run) return "";
  const std::string reason = shortened(event.first_run->reason);
  const std::string_view first_line = protocol::first_line(reason);
  return fmt::format("first run: {}{}{}", to_string(event.first_run->outcome), first_line.empty() ? "" : ": ",
                     first_line);
}

std::string earlier_runs_text(const CaseFinished& event) {
  std::string text;
  for (std::size_t i = 0; i < event.earlier.size();) {
    std::size_t next = i;
    while (next < event.earlier.size() && event.earlier[next].outcome == event.earlier[i].outcome) ++next;
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", next - i, to_string(event.earlier[i].outcome));
    i = next;
  }
  return text.empty() ? "" : fmt::format("earlier runs: {} (the oldest first)\n", text);
}

void CaseRuns::add(const CaseFinished& event) {
  if (event.runs > 1 && is_of_the_case(event.outcome)) {
    ++counts_[event.id].at(static_cast<std::size_t>(event.outcome));
  }
}

std::string CaseRuns::difference(const std::string& id) const {
  const auto counts = counts_.find(id);
  if (counts == counts_.end()) return "";
  std::string text;
  std::size_t all = 0;
  std::size_t kinds = 0;
  for (std::size_t i = 0; i < kCaseOutcomes; ++i) {
    const std::size_t count = counts->second.at(i);
    const auto outcome = static_cast<CaseOutcome>(i);
    all += count;
    kinds += count > 0 ? 1 : 0;
    if (count == 0 || outcome == CaseOutcome::pass) continue;
    text += fmt::format("{}{} in {}", text.empty() ? "" : ", ", to_string(outcome), count);
  }
  return kinds < 2 ? "" : fmt::format("{} of {}", text, all);
}

std::string CaseRuns::text() const {
  std::string lines;
  std::size_t found = 0;
  for (const auto& [id, counts] : counts_) {
    const std::string differs = difference(id);
    if (differs.empty() || ++found > kMostListed) continue;
    lines += fmt::format("  {}: {}\n", differs, id);
  }
  if (found == 0) return "";
  if (found > kMostListed) lines += fmt::format("  and {} more\n", found - kMostListed);
  return fmt::format("{} of {} repeated: runs that ended differently\n{}", found, counts_.size(), lines);
}

}  // namespace cp_pool
