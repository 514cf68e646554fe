#include "driver/reporters/markdown_sink.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "driver/figures.h"
#include "driver/reporters/case_runs.h"
#include "driver/reporters/failure_text.h"
#include "driver/reporters/markdown.h"
#include "driver/reporters/search_text.h"
#include "driver/reporters/text_format.h"
#include "driver/reporters/verdict_text.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

constexpr std::size_t kMostRows = 200;                         // rows of the table of failures
constexpr std::size_t kMostDetails = std::size_t{16} << 10U;   // bytes for each text of one failure
constexpr std::size_t kMostSummary = std::size_t{128} << 10U;  // bytes for each table that the terminal shows, too
constexpr std::size_t kMostNotices = 50;
constexpr std::size_t kSlowestShown = 10;
constexpr std::size_t kMostOfALine = 300;  // columns of foreign text

std::string line_of(const std::string& foreign) {
  return markdown_text(cut_middle(protocol::first_line(foreign), kMostOfALine));
}

// Returns the failed check that is furthest above its bound.
const Check* worst_check(const CaseFinished& event) {
  const Check* worst = nullptr;
  double most = -1;
  for (const Check& check : event.checks) {
    const double ratio = error_over_bound(check).value_or(0);
    if (check.ok || ratio <= most) continue;
    worst = &check;
    most = ratio;
  }
  return worst;
}

std::string row_of(const CaseFinished& event, const std::string& first_like) {
  const Check* const check = worst_check(event);
  std::string where = event.pool ? "pool " + to_string(*event.pool) : "";
  std::string figures;
  if (check != nullptr) {
    where = fmt::format("rank {}: {}", check->rank, check->tensor);
    if (check->measured) figures = fmt::format("{} / {}", format_figure(check->error), format_figure(check->bound));
  }
  std::string why = line_of(passed_unexpectedly(event) ? expected_text(event) : why_it_failed(event));
  if (event.diagnosis && names_a_cause(*event.diagnosis)) {
    why = fmt::format("cause{}: {}", event.diagnosis->certainty == Certainty::certain ? "" : " (likely)", why);
  }
  if (!first_like.empty()) why = fmt::format("the same as {}", markdown_code(first_like));
  return fmt::format("| {} | {} | {} | {} | {}", outcome_word(event), markdown_code(case_name(event)), line_of(where),
                     figures, why);
}

std::string details_of(const CaseFinished& event) {
  std::string text = expected_text(event);
  if (!text.empty()) text += '\n';
  text += protocol::cut_text(failure_details(event, DrawMask::coarse), kMostDetails);
  if (!text.ends_with('\n')) text += '\n';
  text += protocol::cut_text(stderr_details(event), kMostDetails);
  text += earlier_runs_text(event);
  return fmt::format("<details><summary>{} {}</summary>\n\n{}\nRerun:\n\n{}\n", outcome_word(event),
                     html_escaped(case_name(event)), markdown_block(text),
                     markdown_block(protocol::cut_text(event.rerun, kMostDetails)));
}

std::string counts_table(const RunFinished& finished) {
  std::string names;
  std::string rule;
  std::string counts;
  for (std::size_t i = 0; i < kCaseOutcomes; ++i) {
    if (finished.counts.at(i) == 0) continue;
    names += fmt::format("| {} ", to_string(static_cast<CaseOutcome>(i)));
    rule += "|---:";
    counts += fmt::format("| {} ", finished.counts.at(i));
  }
  const auto add = [&](std::size_t count, const char* name) {
    if (count == 0) return;
    names += fmt::format("| {} ", name);
    rule += "|---:";
    counts += fmt::format("| {} ", count);
  };
  add(finished.expected_failures, "of these failed as expected");
  add(finished.unexpected_passes, "of these passed unexpectedly");
  return names.empty() ? "" : fmt::format("{}|\n{}|\n{}|\n\n", names, rule, counts);
}

constexpr std::string_view kRowEnd = " |\n";
constexpr std::string_view kDetailsEnd = "</details>\n\n";

std::string section(const char* title, const std::string& text) {
  return text.empty() ? ""
                      : fmt::format("### {}\n\n{}\n", title, markdown_block(protocol::cut_text(text, kMostSummary)));
}

}  // namespace

MarkdownSink::MarkdownSink(std::filesystem::path path)
    : file_{std::move(path)},
      notes_{[this](std::string_view kind, const std::string& text) {
               if (++told_notices_ <= kMostNotices) notices_.push_back(fmt::format("{}: {}", kind, text));
             },
             true} {}

void MarkdownSink::on_event(const Event& event) {
  notes_.on_event(event);
  if (const auto* started = std::get_if<RunStarted>(&event)) {
    run_ = *started;
    perf_ = PerfTable{run_.baseline};
  } else if (const auto* retired = std::get_if<PoolRetired>(&event)) {
    on(*retired);
  } else if (const auto* finished_case = std::get_if<CaseFinished>(&event)) {
    on(*finished_case);
  } else if (const auto* tried = std::get_if<CaseTried>(&event)) {
    summary_.add(*tried);
  } else if (const auto* verdict = std::get_if<CaseVerdict>(&event)) {
    on(*verdict);
  } else if (const auto* found = std::get_if<SearchFound>(&event)) {
    found_.push_back(*found);
  } else if (const auto* searched = std::get_if<SearchFinished>(&event)) {
    search_summary_ = search_summary(*searched, found_);
  } else if (const auto* finished = std::get_if<RunFinished>(&event)) {
    file_.commit(document(*finished));
  }
}

void MarkdownSink::on(const PoolRetired& event) {
  if (is_expected(event.reason) || ++told_notices_ > kMostNotices) return;
  notices_.push_back(fmt::format("pool {} given up after {}: {}{}", to_string(event.pool),
                                 count_of(static_cast<std::size_t>(event.cases), "case"), to_string(event.reason),
                                 event.detail.empty() ? "" : ": " + event.detail));
}

void MarkdownSink::on(const CaseFinished& event) {
  summary_.add(event);
  perf_.add(event);
  if (is_of_the_case(event.outcome)) durations_ms_.emplace_back(event.duration_ms, case_name(event));
  if (is_failure(event) && !is_shown_by_smallest(event.search)) add_failure(event);
}

// Verdicts come when all cases have ended.
void MarkdownSink::on(const CaseVerdict& event) {
  summary_.add(event);
  const auto failure = std::ranges::find_if(
      failures_, [&](const Failure& one) { return one.index == event.index && one.run == event.run; });
  if (failure == failures_.end()) return;
  failure->row += fmt::format("; {}", line_of(verdict_line(event.verdict)));
  if (!failure->details.empty()) {
    failure->details += markdown_block(protocol::cut_text(verdict_text(event.verdict), kMostDetails)) + '\n';
  }
}

void MarkdownSink::add_failure(const CaseFinished& event) {
  if (++failed_ > kMostRows) return;
  const std::string first = told_.first_like(event);
  failures_.push_back({.index = event.index,
                       .run = event.run,
                       .row = row_of(event, first),
                       .details = first.empty() ? details_of(event) : ""});
}

std::string MarkdownSink::failures_text(std::size_t room) const {
  if (failures_.empty()) return "";
  std::string rows = fmt::format(
      "### {} failed\n\n| outcome | case | where | error / bound | why |\n|---|---|---|---|---|\n", failed_);
  std::size_t shown = 0;
  for (; shown < failures_.size() && rows.size() + failures_[shown].row.size() < room / 2; ++shown) {
    rows.append(failures_[shown].row).append(kRowEnd);
  }
  if (shown < failed_) rows += fmt::format("\nand {} more\n", failed_ - shown);
  rows += '\n';
  std::string details;
  std::size_t left_out = 0;
  for (std::size_t i = 0; i < shown; ++i) {
    if (rows.size() + details.size() + failures_[i].details.size() > room) {
      ++left_out;
    } else if (!failures_[i].details.empty()) {
      details.append(failures_[i].details).append(kDetailsEnd);
    }
  }
  if (left_out > 0) details += fmt::format("The details of {} more do not fit here.\n\n", left_out);
  if (run_.rerun_failed && failed_ > 1) {
    details += fmt::format("Rerun all of them:\n\n{}\n", markdown_block(*run_.rerun_failed));
  }
  return rows + details;
}

std::string MarkdownSink::slowest_text() const {
  if (durations_ms_.empty()) return "";
  auto slowest = durations_ms_;
  std::ranges::stable_sort(slowest, std::greater{}, &std::pair<double, std::string>::first);
  if (slowest.size() > kSlowestShown) slowest.resize(kSlowestShown);
  std::string out = "### Slowest\n\n| time | case |\n|---:|---|\n";
  for (const auto& [milliseconds, name] : slowest) {
    out += fmt::format("| {} | {} |\n", format_duration(milliseconds), markdown_code(name));
  }
  return out + '\n';
}

std::string MarkdownSink::notices_text() const {
  if (notices_.empty()) return "";
  std::string out = "### Notices\n\n";
  for (const std::string& notice : notices_) out += fmt::format("- {}\n", line_of(notice));
  if (told_notices_ > notices_.size()) out += fmt::format("- and {} more\n", told_notices_ - notices_.size());
  return out + '\n';
}

std::string MarkdownSink::document(const RunFinished& finished) const {
  const std::string size = run_.size.empty() ? "" : fmt::format(" ({})", run_.size);
  const std::string head =
      fmt::format("{}{}{} on {}{}\n\n**{}**\n\n{}", kMarkdownStart, line_of(run_.title), size, line_of(run_.device),
                  line_of(implementation_text(run_)), markdown_text(ledger_line(finished)),
                  finished.interrupted ? "Interrupted: the run was stopped before its end.\n\n" : "") +
      counts_table(finished);
  const std::string rest = section("Search", search_summary_) + slowest_text() + section("Times", perf_.text()) +
                           section("Summary", summary_.text()) + notices_text();
  const std::size_t used = head.size() + rest.size();
  return head + failures_text(kMostMarkdown - std::min(kMostMarkdown, used)) + rest;
}

}  // namespace cp_pool
