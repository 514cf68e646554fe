#include "driver/cli/history/case_trends.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "driver/cli/command_error.h"
#include "driver/cli/history/events_file.h"

namespace cp_pool {

namespace {

// The outcomes of the cases of one run. A case that ran several times has its worst outcome, and its last duration.
using OneRun = std::map<std::string, EarlierRun>;

OneRun cases_of(const RunRecord& record) {
  OneRun cases;
  read_events(record.events(), "the record", [&](const Event& event, const auto&) {
    const auto* finished = std::get_if<CaseFinished>(&event);
    if (finished == nullptr || !was_reached(finished->outcome)) return;
    const EarlierRun now{.run = record.id, .outcome = finished->outcome, .duration_ms = finished->duration_ms};
    const auto [known, is_new] = cases.emplace(finished->id, now);
    if (is_new) return;
    known->second.duration_ms = now.duration_ms;
    if (went_well(known->second.outcome)) known->second.outcome = now.outcome;
  });
  return cases;
}

}  // namespace

CaseTrends read_case_trends(const std::vector<RunRecord>& records, const std::string& size, const std::string& device,
                            std::string_view before) {
  CaseTrends trends;
  std::size_t runs = 0;
  for (auto record = records.rbegin(); record != records.rend() && runs < kTrendRuns; ++record) {
    if (!before.empty() && record->id >= before) continue;
    try {
      const auto header = read_record_header(*record);
      if (!header || header->size != size || header->device != device || writer_of(*record)) continue;
      for (auto& [id, earlier] : cases_of(*record)) trends[id].push_back(std::move(earlier));
      ++runs;
    } catch (const CommandError&) {
      continue;
    }
  }
  for (auto& [id, earlier] : trends) std::ranges::reverse(earlier);
  return trends;
}

void TrendSink::on_event(const Event& event) {
  const auto* finished = std::get_if<CaseFinished>(&event);
  const auto trend = finished == nullptr ? trends_.end() : trends_.find(finished->id);
  if (trend == trends_.end() || !finished->earlier.empty()) {
    next_.on_event(event);
    return;
  }
  CaseFinished with_trend = *finished;
  with_trend.earlier = trend->second;
  next_.on_event(with_trend);
}

}  // namespace cp_pool
