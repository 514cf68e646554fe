#include "driver/report/reported_run.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "driver/report/text_format.h"

namespace cp_pool {

ReportedRun::ReportedRun(PhaseTimes phases)
    : report_{phases},
      notices_{
          [this](std::string_view kind, const std::string& text) { add_notice(fmt::format("{}: {}", kind, text)); },
          true} {}

void ReportedRun::add_notice(std::string text) {
  constexpr std::size_t kMostNotices = 50;
  if (++report_.all_notices <= kMostNotices) report_.notices.push_back(std::move(text));
}

void ReportedRun::on_event(const Event& event) {
  notices_.on_event(event);
  report_.add(event);
  const auto* const retired = std::get_if<PoolRetired>(&event);
  if (retired == nullptr || is_expected(retired->reason)) return;
  add_notice(fmt::format("pool {} given up after {}: {}{}", to_string(retired->pool),
                         count_of(static_cast<std::size_t>(retired->cases), "case"), to_string(retired->reason),
                         retired->detail.empty() ? "" : ": " + retired->detail));
}

}  // namespace cp_pool
