#include "driver/report/timings_table.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include <fmt/format.h>

#include "cases/case_groups.h"
#include "cases/case_phases.h"
#include "driver/report/summary.h"
#include "driver/report/text_format.h"

namespace cp_pool {

namespace {

constexpr std::size_t kSlowest = 10;
constexpr const char* kWholeCase = "case";

// As place_of_phase, and then the whole case, and the diagnosis that follows it.
std::size_t place(std::string_view row) {
  constexpr std::size_t kAfterCase = 2 * case_phase::kOfACase.size();
  if (row == kWholeCase) return kAfterCase;
  return row == case_phase::kDiagnosis ? kAfterCase + 1 : place_of_phase(row);
}

}  // namespace

std::size_t place_of_phase(std::string_view phase) {
  constexpr const auto& kPhases = case_phase::kOfACase;
  const auto place_of = [](std::string_view one) {
    return 2 * static_cast<std::size_t>(std::ranges::find(kPhases, one) - kPhases.begin());
  };
  const std::size_t found = place_of(phase);
  return found < 2 * kPhases.size() ? found : place_of(case_phase::kBarrier) - 1;
}

bool TimingsTable::RowOrder::operator()(const Row& a, const Row& b) const {
  return std::tuple{a.first, place(a.second), a.second} < std::tuple{b.first, place(b.second), b.second};
}

void TimingsTable::add(const CaseFinished& event) {
  if (!is_of_the_case(event.outcome)) return;
  const int world_size = event.payload->ranks();
  const bool first_use = first_uses_.add(event);
  const auto add_time = [&](std::string_view phase, double milliseconds) {
    phases_ms_[{world_size, std::string(phase)}].add(milliseconds, first_use);
  };
  for (const auto& [phase, milliseconds] : event.timings_ms) add_time(phase, milliseconds);
  if (event.diagnosis && event.diagnosis->ms > 0) add_time(case_phase::kDiagnosis, event.diagnosis->ms);
  add_time(kWholeCase, event.duration_ms);
  cases_.push_back({.ms = event.duration_ms, .id = event.id, .first_use_of = first_use ? event.backend : ""});
}

std::string TimingsTable::text() const {
  if (cases_.empty()) return "";
  std::string out = fmt::format("{:>5}  {:<16} {:>6} {:>9} {:>9} {:>9} {:>9}\n", "ranks", "phase", "cases", "min",
                                "p50", "p95", "max");
  for (const auto& [key, durations] : phases_ms_) {
    const auto& [world_size, phase] = key;
    const std::vector<double>& values = durations.all;
    out += fmt::format("{:>5}  {:<16} {:>6} {:>9} {:>9} {:>9} {:>9}\n", world_size, phase, values.size(),
                       format_duration(std::ranges::min(values)), format_duration(durations.p50()),
                       format_duration(quantile(values, 0.95)), format_duration(std::ranges::max(values)));
  }
  auto slowest = cases_;
  std::ranges::stable_sort(slowest, std::greater{}, &Timed::ms);
  if (slowest.size() > kSlowest) slowest.resize(kSlowest);
  out += "slowest\n";
  for (const auto& [milliseconds, id, first_use_of] : slowest) {
    const std::string mark = first_use_of.empty() ? "" : fmt::format("  (first use of {} in its pool)", first_use_of);
    out += fmt::format("{:>9}  {}{}\n", format_duration(milliseconds), id, mark);
  }
  return out;
}

}  // namespace cp_pool
