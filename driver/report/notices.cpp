#include "driver/report/notices.h"

#include <algorithm>

#include <fmt/format.h>

#include "driver/report/case_text.h"
#include "driver/report/text_format.h"

namespace cp_pool {
void Notices::on_event(const Event& event) {
  if (report_ != nullptr) report_->add(event);
  std::visit(
      [this](const auto& e) {
        if constexpr (requires { this->on(e); }) this->on(e);
      },
      event);
}

void Notices::on(const PoolRetired& event) {
  pools_ -= pools_ > 0 ? 1 : 0;
  if (is_expected(event.reason)) return;
  note(fmt::format("{} given up after {}: {}{}", pool_name(event.pool), count_of(event.cases, "case"),
                   to_string(event.reason), event.detail.empty() ? "" : ": " + event.detail));
}

void Notices::on(const CaseStarted& event) {
  std::erase_if(running_, [&](const Running& running) { return running.index == event.index; });  // sent again
  running_.push_back({.index = event.index, .id = event.id});
}

void Notices::on(const CaseProgress& event) {
  const auto running = std::ranges::find(running_, event.index, &Running::index);
  if (running != running_.end()) running->phase = event.phase;
  if (!event.slow) return;
  tell("slow",
       fmt::format("{} has been running for {} on pool {}, {}; its deadline is {} (--timeout)", event.id,
                   format_duration(event.running_ms), to_string(event.pool),
                   event.phase.empty() ? "no phase reported" : "in " + event.phase, format_duration(event.timeout_ms)));
}

void Notices::on(const CaseFinished& event) {
  std::erase_if(running_, [&](const Running& running) { return running.index == event.index; });
  case_failed_ = case_failed_ || is_failure(event);
  if (event.outcome != CaseOutcome::infra || !reasons_shown_.insert(event.reason).second) return;
  tell("error", on_one_line(event.reason), errors_);
}

void Notices::on(const OutputLost& event) {
  output_lost_ = true;
  tell("error", on_one_line(fmt::format("{}: {}", event.output, event.message)));
}

void Notices::on(const ForkServerTold& event) {
  if (event.reason.empty()) return;
  tell("warning",
       fmt::format("{}: {}", event.ready ? "each rank imports the adapter by itself" : "ranks are started one by one",
                   on_one_line(event.reason)));
}

void Notices::on(const RunStopping& event) {
  using Reason = RunStopping::Reason;
  if (event.reason == Reason::killed) return tell("interrupted", "again: the ranks are killed at once");
  const bool by_user = event.reason == Reason::interrupted;
  const std::string left = rest_text();
  if (!by_user && left.empty()) return;
  std::string text = by_user                                  ? "no further case is started"
                     : event.reason == Reason::global_timeout ? "the time of the run is over (--global-timeout)"
                                                              : "what the ranks run has changed";
  if (!left.empty()) {
    text += fmt::format("; waiting for {}, {} at most (3 x --grace)", left, format_duration(event.limit_ms));
    // If the run was already stopping for another reason, the first Ctrl-C only begins an interrupt.
    if (by_user) text += "; a second Ctrl-C kills them at once";
  }
  tell(by_user ? "interrupted" : "stopped", text);
}

// Returns "ID (in forward) and 2 more cases to be cancelled and 3 pools to end"; empty if nothing is left.
std::string Notices::rest_text() const {
  std::string text;
  if (!running_.empty()) {
    const Running& first = running_.front();
    text = fmt::format("{}{}", first.id, first.phase.empty() ? "" : fmt::format(" (in {})", first.phase));
    if (running_.size() > 1) text += fmt::format(" and {}", count_of(running_.size() - 1, "more case"));
    text += " to be cancelled";
  }
  if (pools_ == 0) return text;
  return fmt::format("{}{} to end", text.empty() ? "" : text + " and ", count_of(pools_, "pool"));
}

void Notices::tell(std::string_view kind, const std::string& text, bool shown) {
  if (shown) show_(kind, text);
  note(fmt::format("{}: {}", kind, text));
}

void Notices::note(std::string text) {
  constexpr std::size_t kMostNotices = 50;
  if (report_ != nullptr && ++report_->all_notices <= kMostNotices) report_->notices.push_back(std::move(text));
}

}  // namespace cp_pool
