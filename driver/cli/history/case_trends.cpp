#include "driver/cli/history/case_trends.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "driver/core/exit_code.h"
#include "driver/log/run_log.h"

namespace cp_pool {

namespace {

// The outcomes of the cases of one run. A case that ran several times has its worst outcome, and its last duration.
using OneRun = std::map<CaseTrends::key_type, EarlierRun>;

OneRun cases_of(const RunRecord& record, const RunStarted& header) {
  OneRun cases;
  RunLog().read(record.events(), "the record", [&](const Event& event, const auto&) {
    const auto* finished = std::get_if<CaseFinished>(&event);
    if (finished == nullptr || !was_reached(finished->outcome)) return;
    const EarlierRun now{.run = record.id, .outcome = finished->outcome, .duration_ms = finished->duration_ms};
    const auto [known, is_new] = cases.try_emplace({finished->id, implementation_of(header, *finished)}, now);
    if (is_new) return;
    known->second.duration_ms = now.duration_ms;
    if (went_well(known->second.outcome)) known->second.outcome = now.outcome;
  });
  return cases;
}

bool is_like(const RunStarted& run, const RunStarted& other) {
  return run.size == other.size && run.device == other.device &&
         std::ranges::find_first_of(run.implementations, other.implementations) != run.implementations.end();
}

}  // namespace

CaseTrends read_case_trends(const std::vector<RunRecord>& records, const RunStarted& run, std::string_view before) {
  CaseTrends trends;
  std::size_t runs = 0;
  for (auto record = records.rbegin(); record != records.rend() && runs < kTrendRuns; ++record) {
    if (!before.empty() && record->id >= before) continue;
    try {
      const auto header = read_record_header(*record);
      if (!header || !is_like(run, *header) || writer_of(*record)) continue;
      for (auto& [of_case, earlier] : cases_of(*record, *header)) trends[of_case].push_back(std::move(earlier));
      ++runs;
    } catch (const CommandError&) {
      continue;
    }
  }
  for (auto& [of_case, earlier] : trends) std::ranges::reverse(earlier);
  return trends;
}

void TrendSink::on_event(const Event& event) {
  if (const auto* header = std::get_if<RunStarted>(&event)) run_ = *header;
  const auto* finished = std::get_if<CaseFinished>(&event);
  const auto trend =
      finished == nullptr ? trends_.end() : trends_.find({finished->id, implementation_of(run_, *finished)});
  if (trend == trends_.end() || !finished->earlier.empty()) {
    next_.on_event(event);
    return;
  }
  CaseFinished with_trend = *finished;
  with_trend.earlier = trend->second;
  next_.on_event(with_trend);
}

}  // namespace cp_pool
