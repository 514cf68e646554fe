#include "driver/log/counted_runs.h"

#include <algorithm>
#include <ranges>

namespace cp_pool {

CaseKey case_key(const RunStarted& run, const std::string& id, const std::string& implementation,
                 const std::optional<Payload>& payload) {
  return {.id = id,
          .size = run.size,
          .device = run.device,
          .implementation = implementation,
          .case_text = payload ? (*payload)->json().dump() : ""};
}

void CountedRuns::add(const CaseKey& key, std::size_t run, bool ran) {
  const Names names = names_of(key);
  if (key.case_text.empty()) {
    unknown_.push_back({.names = names, .run = run, .ran = ran});
  } else {
    runs_[names][key.case_text][run] |= ran;
  }
}

void CountedRuns::close() {
  for (const Unknown& unknown : unknown_) {
    std::map<std::string, Runs>& known = runs_[unknown.names];
    if (known.empty()) known[""];
    // Several cases can have these names only if a client gave the IDs itself; any of them will do.
    known.begin()->second[unknown.run] |= unknown.ran;
  }
}

const CountedRuns::Runs& CountedRuns::runs_of(const CaseKey& key) const {
  const std::map<std::string, Runs>& known = runs_.at(names_of(key));
  return key.case_text.empty() ? known.begin()->second : known.at(key.case_text);
}

std::size_t CountedRuns::counted(const CaseKey& key) const {
  const Runs& runs = runs_of(key);
  std::size_t last = runs.rbegin()->first;
  for (const auto& [run, ran] : runs | std::views::reverse) {
    if (ran) return run;
  }
  return last;
}

std::size_t CountedRuns::first(const CaseKey& key) const {
  return runs_of(key).begin()->first;
}

}  // namespace cp_pool
