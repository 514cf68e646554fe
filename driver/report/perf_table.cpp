#include "driver/report/perf_table.h"

#include <algorithm>
#include <iterator>
#include <map>

#include <fmt/format.h>

#include "driver/report/text_format.h"

namespace cp_pool {

namespace {

// Formats a number with four significant digits.
std::string figure(double value) {
  return fmt::format("{:.{}f}", value, value < 1 ? 4 : value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0);
}

std::string efficiency(const PerfFigures& figures) {
  return figures.efficiency ? fmt::format("{:.3f}", *figures.efficiency) : "-";
}

}  // namespace

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
