#include "driver/cli/history/case_history.h"

#include <algorithm>
#include <compare>
#include <limits>
#include <numeric>
#include <variant>

#include <fmt/format.h>

#include "cases/text_hash.h"
#include "driver/cli/history/earlier_run.h"
#include "driver/core/exit_code.h"
#include "driver/log/run_log.h"
#include "driver/report/output_file.h"

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

// The key that sorts cases, the least first.
struct Place {
  bool went_well = true;
  double negative_ms = 0;

  auto operator<=>(const Place&) const = default;
};

Place place_of(const Item& named, const CaseHistory& history) {
  const auto known = history.duration_ms.find(named.id);
  const double ms = known == history.duration_ms.end() ? std::numeric_limits<double>::infinity() : known->second;
  return {.went_well = !history.failed.contains(named.id), .negative_ms = -ms};
}

}  // namespace

CaseTrends read_case_trends(const std::vector<RunRecord>& records, const RunStarted& run, std::string_view before) {
  CaseTrends trends;
  std::size_t runs = 0;
  for (auto record = records.rbegin(); record != records.rend() && runs < kTrendRuns; ++record) {
    if (!before.empty() && record->id >= before) continue;
    try {
      const auto header = read_record_header(*record);
      if (!header || !is_like(run, *header) || writer_of(record->events())) continue;
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

CaseHistory read_case_history(const std::filesystem::path& events_file) {
  CaseHistory history;
  const auto take_time = [&](const Event& event) {
    const auto* finished = std::get_if<CaseFinished>(&event);
    if (finished != nullptr && was_reached(finished->outcome)) {
      history.duration_ms[finished->id] = finished->duration_ms;
    }
  };
  history.failed = read_failed_cases(events_file, take_time).ids;
  return history;
}

CaseHistory case_history(const CaseTrends& trends, std::span<const Item> cases, const std::string& implementation) {
  CaseHistory history;
  for (const Item& named : cases) {
    const std::string own = implementation_of(named);
    const auto earlier = trends.find({named.id, own.empty() ? implementation : own});
    if (earlier == trends.end()) continue;
    if (!went_well(earlier->second.back().outcome)) history.failed.insert(named.id);
    history.duration_ms[named.id] = earlier->second.back().duration_ms;
  }
  return history;
}

void read_shard_times(SelectionOptions& options) {
  if (!options.shard_times || options.shard.count <= 1) return;
  CaseHistory history = read_case_history(*options.shard_times);
  std::string text;
  for (const auto& [id, ms] : history.duration_ms) text += fmt::format("{} {}\n", id, ms);
  options.times = {.ms = std::move(history.duration_ms), .hash = text_hash(text)};
}

std::vector<std::size_t> ordered_by_history(std::span<const Item> cases, const CaseHistory& history) {
  std::vector<Place> own;
  std::vector<std::string> groups;
  std::map<std::string, std::pair<Place, std::size_t>> of_group;  // its least place and first listed case
  for (std::size_t i = 0; i < cases.size(); ++i) {
    own.push_back(place_of(cases[i], history));
    groups.push_back(cases[i].payload->group());
    const auto [group, is_new] = of_group.try_emplace(groups.back(), own.back(), i);
    if (!is_new) group->second.first = std::min(group->second.first, own.back());
  }
  std::vector<std::size_t> order(cases.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    const auto& group_a = of_group.at(groups[a]);
    const auto& group_b = of_group.at(groups[b]);
    return group_a == group_b ? own[a] < own[b] : group_a < group_b;
  });
  return order;
}

}  // namespace cp_pool
