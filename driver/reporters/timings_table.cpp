#include "driver/reporters/timings_table.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "driver/reporters/summary.h"
#include "driver/reporters/text_format.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

constexpr std::size_t kSlowest = 10;

}  // namespace

void TimingsTable::add(const CaseFinished& event) {
  if (event.outcome != CaseOutcome::pass && !is_failure(event.outcome)) return;
  const int world_size = event.c.cp_size;
  for (const auto& [phase, milliseconds] : event.timings_ms) phases_ms_[{world_size, phase}].push_back(milliseconds);
  phases_ms_[{world_size, "case"}].push_back(event.duration_ms);
  cases_.emplace_back(event.duration_ms, event.id);
}

std::string TimingsTable::text() const {
  if (cases_.empty()) return "";
  std::string out = fmt::format("{:>5}  {:<16} {:>6} {:>9} {:>9} {:>9} {:>9}\n", "ranks", "phase", "cases", "min",
                                "p50", "p95", "max");
  for (const auto& [key, values] : phases_ms_) {
    const auto& [world_size, phase] = key;
    out += fmt::format("{:>5}  {:<16} {:>6} {:>9} {:>9} {:>9} {:>9}\n", world_size, protocol::clean_text(phase),
                       values.size(), format_duration(std::ranges::min(values)), format_duration(quantile(values, 0.5)),
                       format_duration(quantile(values, 0.95)), format_duration(std::ranges::max(values)));
  }
  auto slowest = cases_;
  std::ranges::stable_sort(slowest, std::greater{}, &std::pair<double, std::string>::first);
  if (slowest.size() > kSlowest) slowest.resize(kSlowest);
  out += "slowest\n";
  for (const auto& [milliseconds, id] : slowest) {
    out += fmt::format("{:>9}  {}\n", format_duration(milliseconds), protocol::clean_text(id));
  }
  return out;
}

}  // namespace cp_pool
