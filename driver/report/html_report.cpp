#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pugixml.hpp>

#include "driver/core/failure_kind.h"
#include "driver/core/figures.h"
#include "driver/report/case_text.h"
#include "driver/report/html_document.h"
#include "driver/report/pictures/pictures.h"
#include "driver/report/reports.h"
#include "driver/report/summary.h"
#include "driver/report/text_format.h"
#include "driver/report/time_tables.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

constexpr std::size_t kOpenKinds = 5;       // whose first failure is open; the others show their head until opened
constexpr std::size_t kShownEvidence = 5;   // lines; the others are folded away
constexpr std::size_t kDrawnFailures = 50;  // of the failures that have pictures

void append_section(pugi::xml_node body, const char* title, const std::string& text) {
  if (text.empty()) return;
  append_text(body, "h2", title);
  set(append_text(body, "pre", text), "class", "wide");
}

// Appends the first line as a paragraph, and the others below it, most of them folded away.
void append_words(pugi::xml_node parent, std::string_view text) {
  const std::vector<std::string_view> lines = protocol::lines_of(text);
  const auto append_lines = [&](pugi::xml_node to, std::size_t begin, std::size_t end) {
    if (begin >= end) return;
    const auto shown = std::span(lines).subspan(begin, end - begin);
    append_text(to, "pre", fmt::format("{}\n", fmt::join(shown, "\n")));
  };
  const std::size_t shown = std::min(lines.size(), 1 + kShownEvidence);
  append_text(parent, "p", lines.empty() ? "" : std::string(lines.front()));
  append_lines(parent, 1, shown);
  if (shown == lines.size()) return;
  pugi::xml_node rest = append(parent, "details", {{"class", "calm"}});
  append_text(rest, "summary", count_of(std::ssize(lines) - static_cast<std::ptrdiff_t>(shown), "more line"));
  append_lines(rest, shown, lines.size());
}

// A try of a case that did not pass.
struct Failure {
  const CaseFinished* event;
  bool last;                         // false: the case was run again
  const Verdict* verdict = nullptr;  // of the last failure of a case; nullptr if there is none
  std::size_t kind;                  // number of its kind (FailureKinds)
};

// Returns the failures kind by kind. Kinds and their cases are in the order of the list of cases.
std::vector<Failure> failures_of(const RunReport& run) {
  std::vector<Failure> failures;
  FailureKinds kinds;
  std::set<std::string> reasons;  // why cases could not be judged by any pool, each once
  for (const ReportedCase& c : run.cases) {
    const std::size_t before = failures.size();
    for (const ReportedTry& each : c.tries) {
      const CaseFinished& event = each.end;
      const bool last = &each == &c.tries.back();
      const bool told =
          !last || is_failure(event) || (event.outcome == CaseOutcome::infra && reasons.insert(event.reason).second);
      if (!told || (last && is_shown_by_smallest(event.search))) continue;
      failures.push_back({.event = &event, .last = last, .kind = kinds.add(event)});
    }
    if (failures.size() > before) failures.back().verdict = run.verdict_on(c.end());
  }
  std::ranges::stable_sort(failures, {}, [](const Failure& failure) { return failure.event->index; });
  std::map<std::size_t, std::size_t> firsts;  // the place of each kind's first failure
  for (const Failure& failure : failures) firsts.try_emplace(failure.kind, firsts.size());
  std::ranges::stable_sort(failures, {}, [&](const Failure& failure) { return firsts.at(failure.kind); });
  return failures;
}

// Returns why it failed, as a sentence on the first line, and then the evidence: checks, errors, stderr.
std::string text_of(const Failure& failure) {
  const CaseFinished& event = *failure.event;
  const std::string expected = is_to_fail(event.expected) ? expected_text(event) + '\n' : "";
  return expected + failure_details(event) + stderr_details(event) + earlier_runs_text(event) +
         (failure.verdict == nullptr ? "" : verdict_text(*failure.verdict));
}

// `listed` has a line for each failure.
void append_failures(pugi::xml_node body, const RunReport& run, const std::string& listed) {
  const std::vector<Failure> failures = failures_of(run);
  if (failures.empty()) return;
  append_text(body, "h2", "Failures");
  if (!listed.empty()) append_text(body, "pre", listed);
  std::set<std::size_t> kinds;
  std::size_t drawn = 0;
  for (const Failure& failure : failures) {
    const CaseFinished& event = *failure.event;
    pugi::xml_node details = append(body, "details", {{"class", "failure"}});
    if (kinds.insert(failure.kind).second && kinds.size() <= kOpenKinds) set(details, "open", "open");
    pugi::xml_node head = details.append_child("summary");
    set(append_text(head, "span", std::string{outcome_word(event)}), "class", outcome_class(Urgency::bad));
    head.append_child(pugi::node_pcdata).set_value(" ");
    const std::string name = case_name(event) + ending_text(event) + (failure.last ? "" : ", was run again");
    set(append_text(head, "a", name), "href", "#" + case_anchor(event.index));
    if (event.diagnosis && drawn < kDrawnFailures) {
      const std::optional<MaskPicture>& picture = event.diagnosis->picture;
      const std::vector<ErrorStrip>& strips = event.diagnosis->strips;
      if (picture) append_mask(details, *picture, fmt::format("failure-{}-mask", event.index));
      append_strips(details, strips, fmt::format("failure-{}-strips", event.index));
      drawn += picture || !strips.empty() ? 1 : 0;
    }
    append_words(details, text_of(failure));
    if (event.rerun.empty()) continue;
    pugi::xml_node rerun = append_text(details, "p", "rerun: ");
    append_text(rerun, "code", event.rerun);
  }
}

void append_overview(pugi::xml_node body, const std::vector<const ReportedCase*>& cases) {
  using Columns = std::map<std::string, CaseGroup>;
  using Rows = std::vector<std::pair<std::string, Columns>>;  // in the order of their first case
  std::vector<std::pair<std::string, Rows>> suites;
  std::set<std::string> columns;
  const auto entry_of = [](auto& list, const std::string& name) -> auto& {
    auto entry = std::ranges::find(list, name, [](const auto& pair) -> const auto& { return pair.first; });
    if (entry == list.end()) entry = list.insert(entry, {name, {}});
    return entry->second;
  };
  for (const ReportedCase* const c : cases) {
    const CaseFinished& event = c->end();
    const std::string column = event.payload->column();
    columns.insert(column);
    entry_of(entry_of(suites, suite_of(event)), event.payload->model())[column].add(event);
  }
  for (const auto& [suite, rows] : suites) {
    append_text(body, "h2", suite + ": passed by model, communication type and layout");
    std::vector<std::string> head{"model"};
    head.insert(head.end(), columns.begin(), columns.end());
    pugi::xml_node table = append_table(body, head);
    for (const auto& [model, cells] : rows) {
      pugi::xml_node row = table.append_child("tr");
      append_cell(row, model);
      for (const std::string& column : columns) {
        const auto found = cells.find(column);
        if (found == cells.end()) {
          append_cell(row, "");
          continue;
        }
        const CaseGroup& cell = found->second;
        const std::size_t passed = cell.counts.at(static_cast<std::size_t>(CaseOutcome::pass));
        const std::string text =
            passed == cell.cases ? fmt::format("{}", cell.cases) : fmt::format("{} of {}", passed, cell.cases);
        pugi::xml_node link = append_text(append_cell(row, "", outcome_class(urgency_of(*cell.shown))), "a", text);
        set(link, "href", "#" + case_anchor(cell.shown->index));
      }
    }
  }
}

std::string worker_text(const protocol::ReadyEvent& ready) {
  std::string text = in_line(ready.worker);
  if (const int gpus = protocol::shared_gpus(ready); gpus > 0) {
    text += fmt::format(", ranks share {}", count_of(gpus, "GPU"));
  }
  for (const auto& [name, version] : ready.versions.items()) {
    text += in_line(fmt::format(", {} {}", name, version.is_string() ? version.get<std::string>() : version.dump()));
  }
  return text;
}

std::string hosts_text(const protocol::ReadyEvent& ready) {
  std::string text;
  std::set<std::string> hosts;
  for (const protocol::RankInfo& rank : ready.ranks) {
    if (hosts.insert(rank.host).second) text += (text.empty() ? "" : " ") + in_line(rank.host);
  }
  return text;
}

void append_pools(pugi::xml_node body, const std::vector<ReportedPool>& pools) {
  if (pools.empty()) return;
  append_text(body, "h2", "Pools");
  pugi::xml_node table = append_table(body, {"pool", "ready after", "cases", "ended", "hosts", "worker"});
  for (const ReportedPool& pool : pools) {
    std::string end = pool.retired ? std::string{to_string(pool.retired->reason)} : "";
    if (pool.retired && !pool.retired->detail.empty()) end += ": " + in_line(pool.retired->detail);
    pugi::xml_node row = table.append_child("tr");
    append_cell(row, to_string(pool.id));
    append_cell(row, pool.ready ? format_duration(pool.ready->spawn_to_ready_ms) : "never", "number");
    append_cell(row, std::to_string(pool.retired ? pool.retired->cases : 0), "number");
    append_cell(row, end);
    append_cell(row, pool.ready ? hosts_text(*pool.ready) : "");
    append_cell(row, pool.ready ? worker_text(*pool.ready) : "");
  }
}

// Appends a letter for each earlier run, with its time as a tooltip, and the range of the times of those that passed.
void append_trend(pugi::xml_node row, const std::vector<EarlierRun>& earlier) {
  pugi::xml_node cell = append_cell(row, "");
  double least = std::numeric_limits<double>::infinity();
  double most = 0;
  for (const EarlierRun& run : earlier) {
    const std::string name{to_string(run.outcome)};
    pugi::xml_node letter = append_text(cell, "span", name.substr(0, 1));
    set(letter, "class", outcome_class(urgency_of(run.outcome)));
    set(letter, "title", fmt::format("{}: {}, {}", run.run, name, format_duration(run.duration_ms)));
    if (run.outcome != CaseOutcome::pass) continue;
    least = std::min(least, run.duration_ms);
    most = std::max(most, run.duration_ms);
  }
  if (most > 0) append_text(cell, "span", fmt::format(" {} to {}", format_duration(least), format_duration(most)));
}

// Returns the check nearest to its bound: "0.43 dq rank 1"; empty if nothing was checked.
std::string nearest_to_its_bound(const CaseFinished& event) {
  const auto nearest = std::ranges::max_element(event.checks, {}, nearness);
  if (nearest == event.checks.end() || !nearest->measured) return "";
  const std::string factor = event.bound_factor ? fmt::format(" ({})", bound_factor_text(event)) : "";
  return fmt::format("{} {} rank {}{}", ratio_text(*nearest), nearest->tensor, nearest->rank, factor);
}

// Returns the reason and remarks on one line.
std::string note_of(const ReportedCase& c, const RunReport& run) {
  const CaseFinished& event = c.end();
  std::vector<std::string> notes{event.reason.empty() ? words_on_pass(event) : in_line(event.reason),
                                 in_line(first_run_text(event)), tries_text(c), in_line(expected_text(event))};
  if (const Verdict* const verdict = run.verdict_on(event)) notes.push_back(verdict_line(*verdict));
  std::erase(notes, "");
  return fmt::format("{}", fmt::join(notes, "; "));
}

void append_cases(pugi::xml_node body, const std::vector<const ReportedCase*>& cases, const RunReport& run) {
  if (cases.empty()) return;
  append_text(body, "h2", "Cases");
  append_text(body, "p", "Error over bound is that of the check which came nearest to its bound: above 1 it is wrong.");
  const bool trends = std::ranges::any_of(cases, [](const ReportedCase* c) { return !c->end().earlier.empty(); });
  std::vector<std::string> head{"", "outcome", "time", "case", "backend", "error over bound", "reason"};
  if (trends) {
    append_text(body, "p",
                "Earlier runs are recorded ones, the oldest first: the first letter of each outcome, and the least and "
                "the largest time of those that passed.");
    head.insert(head.begin() + 3, "earlier runs");
  }
  pugi::xml_node table = append_table(body, head);
  for (const ReportedCase* const c : cases) {
    const CaseFinished& event = c->end();
    pugi::xml_node row = append(table, "tr", {{"id", case_anchor(event.index)}});
    append_cell(row, std::to_string(event.index + 1), "number");
    append_cell(row, std::string{outcome_word(event)}, outcome_class(urgency_of(event)));
    append_cell(row, format_duration(event.duration_ms), "number");
    if (trends) append_trend(row, event.earlier);
    append_cell(row, case_name(event));
    append_cell(row, event.backend);
    append_cell(row, nearest_to_its_bound(event));
    append_cell(row, note_of(*c, run));
  }
}

}  // namespace

std::string html_report(const RunReport& run) {
  const RunStarted& header = run.header;
  const std::string title =
      fmt::format("{}{} on {}{}", header.title, header.size.empty() ? "" : " (" + header.size + ")", header.device,
                  implementation_text(header));
  const std::vector<const ReportedCase*> cases = run.listed_cases();
  const HtmlDocument document("cp-pool: " + title);
  pugi::xml_node body = document.body();
  append_text(body, "h1", title);
  append_text(body, "p",
              fmt::format("cp-pool {}, {:%Y-%m-%d %H:%M:%S} UTC, {}{}", header.version,
                          fmt::gmtime(std::chrono::system_clock::to_time_t(header.started)),
                          format_duration(run.end.duration_ms),
                          run.end.interrupted ? ": interrupted, the run was stopped before its end" : ""));
  set(append_text(body, "p", ledger_line(run.end)), "class", run.end.exit_code == 0 ? "pass" : "bad");
  if (const std::string text = summary_text(run) + search_summary(run); !text.empty()) append_text(body, "pre", text);
  append_failures(body, run, list_of_failures(run));
  append_overview(body, cases);
  append_features(body, run);
  append_timeline(body, run);
  append_section(body, "How fast", perf_text(run));
  append_section(body, "Where the time went", timings_text(run));
  append_pools(body, run.pools);
  append_cases(body, cases, run);
  return document.text();
}

}  // namespace cp_pool
