#include <algorithm>
#include <functional>
#include <vector>

#include <fmt/format.h>

#include "driver/core/failure_kind.h"
#include "driver/core/figures.h"
#include "driver/report/case_text.h"
#include "driver/report/reports.h"
#include "driver/report/summary.h"
#include "driver/report/text_format.h"
#include "driver/report/time_tables.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

constexpr std::size_t kMostRows = 200;                         // rows of the table of failures
constexpr std::size_t kMostDetails = std::size_t{16} << 10U;   // bytes for each text of one failure
constexpr std::size_t kMostSummary = std::size_t{128} << 10U;  // bytes for each table that the terminal shows, too
constexpr std::size_t kSlowestShown = 10;
constexpr std::size_t kMostOfALine = 300;  // columns of foreign text

std::string line_of(const std::string& foreign) {
  return markdown_text(cut_middle(protocol::first_line(foreign), kMostOfALine));
}

// Returns the failed check that is furthest above its bound.
const Check* worst_check(const CaseFinished& event) {
  const auto badness = [](const Check& check) { return check.ok ? -1 : error_over_bound(check).value_or(0); };
  const auto worst = std::ranges::max_element(event.checks, {}, badness);
  return worst == event.checks.end() || worst->ok ? nullptr : &*worst;
}

// Returns the row of the table of failures.
std::string row_of(const CaseFinished& event, const std::string& first_like, const Verdict* verdict) {
  const Check* const check = worst_check(event);
  std::string where = event.pool ? pool_name(*event.pool) : "";
  std::string figures;
  if (check != nullptr) {
    where = fmt::format("rank {}: {}", check->rank, check->tensor);
    if (check->measured) figures = fmt::format("{} / {}", format_figure(check->error), format_figure(check->bound));
  }
  std::string why = line_of(passed_unexpectedly(event) ? expected_text(event) : cause_or_reason(event));
  if (event.diagnosis && names_a_cause(*event.diagnosis)) {
    why = fmt::format("cause{}: {}", event.diagnosis->certainty == Certainty::certain ? "" : " (likely)", why);
  }
  if (!first_like.empty()) why = fmt::format("the same as {}", markdown_code(first_like));
  if (verdict != nullptr) why += fmt::format("; {}", line_of(verdict_line(*verdict)));
  return fmt::format("| {} | {} | {} | {} | {} |\n", outcome_word(event), markdown_code(case_name(event)),
                     line_of(where), figures, why);
}

// Returns what is folded away below the table.
std::string details_of(const CaseFinished& event, const Verdict* verdict) {
  std::string text = expected_text(event);
  if (!text.empty()) text += '\n';
  text += protocol::cut_text(failure_details(event, DrawMask::coarse), kMostDetails);
  if (!text.ends_with('\n')) text += '\n';
  text += protocol::cut_text(stderr_details(event), kMostDetails);
  text += earlier_runs_text(event);
  const std::string judged =
      verdict == nullptr ? "" : markdown_block(protocol::cut_text(verdict_text(*verdict), kMostDetails)) + '\n';
  return fmt::format("<details><summary>{} {}</summary>\n\n{}\nRerun:\n\n{}\n{}</details>\n\n", outcome_word(event),
                     html_escaped(case_name(event)), markdown_block(text),
                     markdown_block(protocol::cut_text(event.rerun, kMostDetails)), judged);
}

std::string counts_table(const RunFinished& finished) {
  std::string names;
  std::string rule;
  std::string counts;
  const auto add = [&](std::size_t count, std::string_view name) {
    if (count == 0) return;
    names += fmt::format("| {} ", name);
    rule += "|---:";
    counts += fmt::format("| {} ", count);
  };
  for (const auto& [outcome, name] : kNames<CaseOutcome>)
    add(finished.counts.at(static_cast<std::size_t>(outcome)), name);
  add(finished.expected_failures, "of these failed as expected");
  add(finished.unexpected_passes, "of these passed unexpectedly");
  return names.empty() ? "" : fmt::format("{}|\n{}|\n{}|\n\n", names, rule, counts);
}

std::string section(const char* title, const std::string& text) {
  return text.empty() ? ""
                      : fmt::format("### {}\n\n{}\n", title, markdown_block(protocol::cut_text(text, kMostSummary)));
}

std::string failures_text(const RunReport& run, std::size_t room) {
  std::vector<std::pair<std::string, std::string>> failures;  // rows, and details unless an earlier case has the same
  std::size_t failed = 0;                                     // includes those that get no row
  FailureKinds kinds;
  for (const ReportedCase& c : run.cases) {
    const CaseFinished& event = c.end();
    if (!is_failure(event) || is_shown_by_smallest(event.search) || ++failed > kMostRows) continue;
    const std::string first_like = kinds.first_like(event);
    const Verdict* const verdict = run.verdict_on(event);
    failures.emplace_back(row_of(event, first_like, verdict), first_like.empty() ? details_of(event, verdict) : "");
  }
  if (failures.empty()) return "";
  std::string rows =
      fmt::format("### {} failed\n\n| outcome | case | where | error / bound | why |\n|---|---|---|---|---|\n", failed);
  std::size_t shown = 0;
  for (; shown < failures.size() && rows.size() + failures[shown].first.size() < room / 2; ++shown) {
    rows += failures[shown].first;
  }
  if (shown < failed) rows += fmt::format("\nand {} more\n", failed - shown);
  rows += '\n';
  std::string details;
  std::size_t left_out = 0;
  for (std::size_t i = 0; i < shown; ++i) {
    if (rows.size() + details.size() + failures[i].second.size() > room) {
      ++left_out;
    } else {
      details += failures[i].second;
    }
  }
  if (left_out > 0) details += fmt::format("The details of {} more do not fit here.\n\n", left_out);
  if (run.header.rerun_failed && failed > 1) {
    details += fmt::format("Rerun all of them:\n\n{}\n", markdown_block(*run.header.rerun_failed));
  }
  return rows + details;
}

std::string slowest_text(const RunReport& run) {
  std::vector<const CaseFinished*> slowest;
  for (const ReportedCase& c : run.cases) {
    if (is_of_the_case(c.end().outcome)) slowest.push_back(&c.end());
  }
  if (slowest.empty()) return "";
  std::ranges::stable_sort(slowest, std::greater{}, &CaseFinished::duration_ms);
  if (slowest.size() > kSlowestShown) slowest.resize(kSlowestShown);
  std::string out = "### Slowest\n\n| time | case |\n|---:|---|\n";
  for (const CaseFinished* const event : slowest) {
    out += fmt::format("| {} | {} |\n", format_duration(event->duration_ms), markdown_code(case_name(*event)));
  }
  return out + '\n';
}

std::string notices_text(const RunReport& run) {
  if (run.notices.empty()) return "";
  std::string out = "### Notices\n\n";
  for (const std::string& notice : run.notices) out += fmt::format("- {}\n", line_of(notice));
  if (run.all_notices > run.notices.size()) out += fmt::format("- and {} more\n", run.all_notices - run.notices.size());
  return out + '\n';
}

}  // namespace

std::string markdown_report(const RunReport& run) {
  const RunStarted& header = run.header;
  const std::string size = header.size.empty() ? "" : fmt::format(" ({})", header.size);
  const std::string head =
      fmt::format("{}{}{} on {}{}\n\n**{}**\n\n{}", kMarkdownStart, line_of(header.title), size, line_of(header.device),
                  line_of(implementation_text(header)), markdown_text(ledger_line(run.end)),
                  run.end.interrupted ? "Interrupted: the run was stopped before its end.\n\n" : "") +
      counts_table(run.end);
  const std::string rest = section("Search", search_summary(run)) + slowest_text(run) +
                           section("Times", perf_text(run)) + section("Summary", summary_text(run)) + notices_text(run);
  const std::size_t used = head.size() + rest.size();
  return head + failures_text(run, kMostMarkdown - std::min(kMostMarkdown, used)) + rest;
}

}  // namespace cp_pool
