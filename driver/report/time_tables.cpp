#include "driver/report/time_tables.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <ranges>
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

// Formats a number with four significant digits.
std::string figure(double value) {
  return fmt::format("{:.{}f}", value, value < 1 ? 4 : value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0);
}

std::string efficiency(const PerfFigures& figures) {
  return figures.efficiency ? fmt::format("{:.3f}", *figures.efficiency) : "-";
}

// The cases that have times.
using Timed = std::vector<const CaseFinished*>;

std::string row_text(const CaseFinished& event, bool with_baseline) {
  const PerfFigures& figures = *event.perf;
  std::string text =
      fmt::format("{:>9} {:>9} {:>9} {:>8} {:>8} {:>9} {:>6}", figure(figures.ms()), figure(figures.step_ms.min),
                  figure(figures.step_ms.max), figure(figures.tflops), figure(figures.gbytes_per_s),
                  figures.one_rank_ms ? figure(figures.one_rank_ms->median) : "-", efficiency(figures));
  if (with_baseline) {
    text += fmt::format(" {:>9} {:>6}", figures.baseline_ms ? figure(*figures.baseline_ms) : "-",
                        figures.ratio() ? fmt::format("{:.3f}", *figures.ratio()) : "-");
  }
  return text + fmt::format("  {}{}\n", event.id, event.shared_gpus > 0 ? " (shared GPU)" : "");
}

// Returns the passes that a step has.
std::string_view step_words(const Timed& timed) {
  const auto trained = std::ranges::count_if(timed, [](const CaseFinished* event) {
    const Case* const c = event->payload->attention();
    return c != nullptr && c->training;
  });
  if (trained == 0) return "forward alone";
  return trained == std::ssize(timed) ? "forward and backward" : "forward and backward, or forward alone";
}

std::string efficiency_text(const Timed& timed) {
  std::map<std::string, std::size_t> reasons;  // why efficiencies are missing
  for (const CaseFinished* const event : timed) {
    if (event->perf->efficiency) continue;
    const std::string& reason = event->perf->one_rank_reason;
    ++reasons[reason.empty() ? "no reason given" : reason];
  }
  std::string text;
  for (const auto& [reason, count] : reasons) {
    text += fmt::format("{} without efficiency: {}\n", count_of(count, "case"), reason);
  }
  return text;
}

std::string sum_text(const Timed& timed, const std::string& baseline) {
  double before = 0;
  double now = 0;
  std::size_t common = 0;
  for (const CaseFinished* const event : timed) {
    if (!event->perf->baseline_ms) continue;
    ++common;
    before += *event->perf->baseline_ms;
    now += event->perf->ms();
  }
  if (common == 0) return fmt::format("baseline {}: none of these cases is in it\n", baseline);
  return fmt::format("baseline {}: {} of {} in both, {} ms now and {} ms then: {:.3f} of it\n", baseline, common,
                     count_of(timed.size(), "case"), figure(now), figure(before), now / before);
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

std::string timings_text(const RunReport& run) {
  using Row = std::tuple<int, std::size_t, std::string>;  // world size, place of the phase, phase
  struct Ran {
    const CaseFinished* event;
    bool first_use;  // of its backend in the pool
  };
  FirstUses first_uses;
  std::map<Row, Durations> phases_ms;
  std::vector<Ran> cases;
  for (const CaseFinished& event : ends_of(run)) {
    if (!is_of_the_case(event.outcome)) continue;
    const bool first_use = first_uses.add(event);
    const auto add_time = [&](std::string_view phase, double milliseconds) {
      phases_ms[{event.payload->ranks(), place(phase), std::string(phase)}].add(milliseconds, first_use);
    };
    for (const auto& [phase, milliseconds] : event.timings_ms) add_time(phase, milliseconds);
    if (event.diagnosis && event.diagnosis->ms > 0) add_time(case_phase::kDiagnosis, event.diagnosis->ms);
    add_time(kWholeCase, event.duration_ms);
    cases.push_back({&event, first_use && !event.backend.empty()});
  }
  if (cases.empty()) return "";
  std::string out = fmt::format("{:>5}  {:<16} {:>6} {:>9} {:>9} {:>9} {:>9}\n", "ranks", "phase", "cases", "min",
                                "p50", "p95", "max");
  for (const auto& [key, durations] : phases_ms) {
    const auto& [world_size, order, phase] = key;
    const std::vector<double>& values = durations.all;
    out += fmt::format("{:>5}  {:<16} {:>6} {:>9} {:>9} {:>9} {:>9}\n", world_size, phase, values.size(),
                       format_duration(std::ranges::min(values)), format_duration(durations.p50()),
                       format_duration(quantile(values, 0.95)), format_duration(std::ranges::max(values)));
  }
  std::ranges::stable_sort(cases, std::greater{}, [](const Ran& ran) { return ran.event->duration_ms; });
  out += "slowest\n";
  for (const auto& [event, first_use] : cases | std::views::take(kSlowest)) {
    const std::string mark = first_use ? fmt::format("  (first use of {} in its pool)", event->backend) : "";
    out += fmt::format("{:>9}  {}{}\n", format_duration(event->duration_ms), event->id, mark);
  }
  return out;
}

std::string perf_summary(const PerfFigures& figures) {
  std::string text = fmt::format("{} ms, {} TFLOP/s, {} GB/s", figure(figures.ms()), figure(figures.tflops),
                                 figure(figures.gbytes_per_s));
  if (figures.efficiency) text += fmt::format(", efficiency {}", efficiency(figures));
  return text;
}

std::string perf_text(const RunReport& run) {
  Timed timed;
  for (const CaseFinished& event : ends_of(run)) {
    if (event.perf) timed.push_back(&event);
  }
  if (timed.empty()) return "";
  const std::optional<std::string>& baseline = run.header.baseline;  // the name of the run that times are compared with
  std::string text = fmt::format("{:>9} {:>9} {:>9} {:>8} {:>8} {:>9} {:>6}", "ms", "min", "max", "TFLOP/s", "GB/s",
                                 "one rank", "effic.");
  if (baseline) text += fmt::format(" {:>9} {:>6}", "baseline", "ratio");
  text += '\n';
  for (const CaseFinished* const event : timed) text += row_text(*event, baseline.has_value());
  const protocol::PerfRequest& request = timed.front()->perf->request;
  text += fmt::format("a step is {}; median, min and max of {} {}after {} to warm up\n", step_words(timed),
                      request.iterations, request.graph ? "replays of its CUDA graph, " : "", request.warmup);
  const auto shares = [](const CaseFinished* event) { return event->shared_gpus > 0; };
  if (const auto shared = std::ranges::count_if(timed, shares); shared > 0) {
    text += fmt::format("{} with ranks that shared a GPU: each had a part of it, and none of the links between GPUs\n",
                        count_of(shared, "case"));
  }
  return text + efficiency_text(timed) + (baseline ? sum_text(timed, *baseline) : "");
}

}  // namespace cp_pool
