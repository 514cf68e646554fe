#include "driver/report/time_tables.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

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

// Formats a number with four significant digits.
std::string figure(double value) {
  return fmt::format("{:.{}f}", value, value < 1 ? 4 : value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0);
}

std::string efficiency(const PerfFigures& figures) {
  return figures.efficiency ? fmt::format("{:.3f}", *figures.efficiency) : "-";
}

}  // namespace

double quantile(std::vector<double> values, double q) {
  const auto rank = static_cast<std::size_t>(std::ceil(q * static_cast<double>(values.size())));
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

std::size_t place_of_phase(std::string_view phase) {
  constexpr const auto& kPhases = case_phase::kOfACase;
  const auto place_of = [](std::string_view one) {
    return 2 * static_cast<std::size_t>(std::ranges::find(kPhases, one) - kPhases.begin());
  };
  const std::size_t found = place_of(phase);
  return found < 2 * kPhases.size() ? found : place_of(case_phase::kBarrier) - 1;
}

void TimingsTable::add(const CaseFinished& event) {
  if (!is_of_the_case(event.outcome)) return;
  const int world_size = event.payload->ranks();
  const bool first_use = first_uses_.add(event);
  const auto add_time = [&](std::string_view phase, double milliseconds) {
    phases_ms_[{world_size, place(phase), std::string(phase)}].add(milliseconds, first_use);
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
    const auto& [world_size, order, phase] = key;
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

std::string perf_summary(const PerfFigures& figures) {
  std::string text = fmt::format("{} ms, {} TFLOP/s, {} GB/s", figure(figures.ms()), figure(figures.tflops),
                                 figure(figures.gbytes_per_s));
  if (figures.efficiency) text += fmt::format(", efficiency {}", efficiency(figures));
  return text;
}

void PerfTable::add(const CaseFinished& event) {
  if (!event.perf) return;
  const Case* const c = event.payload->attention();
  rows_.push_back({event.id, *event.perf, c != nullptr && c->training, event.shared_gpus > 0});
}

std::string PerfTable::row_text(const Row& row) const {
  const PerfFigures& figures = row.figures;
  std::string text =
      fmt::format("{:>9} {:>9} {:>9} {:>8} {:>8} {:>9} {:>6}", figure(figures.ms()), figure(figures.step_ms.min),
                  figure(figures.step_ms.max), figure(figures.tflops), figure(figures.gbytes_per_s),
                  figures.one_rank_ms ? figure(figures.one_rank_ms->median) : "-", efficiency(figures));
  if (baseline_) {
    text += fmt::format(" {:>9} {:>6}", figures.baseline_ms ? figure(*figures.baseline_ms) : "-",
                        figures.ratio() ? fmt::format("{:.3f}", *figures.ratio()) : "-");
  }
  return text + fmt::format("  {}{}\n", row.id, row.shares ? " (shared GPU)" : "");
}

std::string_view PerfTable::step_words() const {
  const auto trained = std::ranges::count(rows_, true, &Row::trains);
  if (trained == 0) return "forward alone";
  return trained == std::ssize(rows_) ? "forward and backward" : "forward and backward, or forward alone";
}

std::string PerfTable::reasons_text() const {
  std::map<std::string, std::size_t> reasons;
  for (const Row& row : rows_) {
    if (row.figures.efficiency) continue;
    const std::string& reason = row.figures.one_rank_reason;
    ++reasons[reason.empty() ? "no reason given" : reason];
  }
  std::string text;
  for (const auto& [reason, count] : reasons) {
    text += fmt::format("{} without efficiency: {}\n", count_of(count, "case"), reason);
  }
  return text;
}

std::string PerfTable::sum_text() const {
  if (!baseline_) return "";
  double before = 0;
  double now = 0;
  std::size_t common = 0;
  for (const Row& row : rows_) {
    if (!row.figures.baseline_ms) continue;
    ++common;
    before += *row.figures.baseline_ms;
    now += row.figures.ms();
  }
  const std::string& name = *baseline_;
  if (common == 0) return fmt::format("baseline {}: none of these cases is in it\n", name);
  return fmt::format("baseline {}: {} of {} in both, {} ms now and {} ms then: {:.3f} of it\n", name, common,
                     count_of(rows_.size(), "case"), figure(now), figure(before), now / before);
}

std::string PerfTable::text() const {
  if (rows_.empty()) return "";
  std::string text = fmt::format("{:>9} {:>9} {:>9} {:>8} {:>8} {:>9} {:>6}", "ms", "min", "max", "TFLOP/s", "GB/s",
                                 "one rank", "effic.");
  if (baseline_) text += fmt::format(" {:>9} {:>6}", "baseline", "ratio");
  text += '\n';
  for (const Row& row : rows_) text += row_text(row);
  const protocol::PerfRequest& request = rows_.front().figures.request;
  text += fmt::format("a step is {}; median, min and max of {} {}after {} to warm up\n", step_words(),
                      request.iterations, request.graph ? "replays of its CUDA graph, " : "", request.warmup);
  const auto shared = static_cast<std::size_t>(std::ranges::count(rows_, true, &Row::shares));
  if (shared > 0) {
    text += fmt::format("{} with ranks that shared a GPU: each had a part of it, and none of the links between GPUs\n",
                        count_of(shared, "case"));
  }
  return text + reasons_text() + sum_text();
}

}  // namespace cp_pool
