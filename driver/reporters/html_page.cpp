#include "driver/reporters/html_page.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <pugixml.hpp>

#include "driver/reporters/html_document.h"
#include "driver/reporters/pictures/mask_svg.h"
#include "driver/reporters/pictures/strip_svg.h"
#include "driver/reporters/pictures/timeline_svg.h"
#include "driver/reporters/text_format.h"
#include "driver/reporters/xml_nodes.h"

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

// Returns whether there was anything to draw.
bool append_diagnosis(pugi::xml_node parent, const Diagnosis& diagnosis, std::size_t index) {
  const std::string id = fmt::format("failure-{}", index);
  if (diagnosis.picture) append_mask(parent, *diagnosis.picture, id + "-mask");
  append_strips(parent, diagnosis.strips, id + "-strips");
  return diagnosis.picture || !diagnosis.strips.empty();
}

// Removes the first `count` lines of the text and returns them.
std::string_view take_lines(std::string_view& text, std::size_t count) {
  std::size_t end = 0;
  while (count-- > 0 && end < text.size()) end = std::min(text.find('\n', end), text.size() - 1) + 1;
  const std::string_view lines = text.substr(0, end);
  text.remove_prefix(end);
  return lines;
}

void append_lines(pugi::xml_node parent, std::string_view lines) {
  if (!lines.empty()) append_text(parent, "pre", std::string(lines));
}

void append_words(pugi::xml_node parent, std::string_view text) {
  const std::string_view sentence = take_lines(text, 1);
  append_text(parent, "p", std::string(sentence.substr(0, sentence.find('\n'))));
  append_lines(parent, take_lines(text, kShownEvidence));
  if (text.empty()) return;
  pugi::xml_node rest = parent.append_child("details");
  set(rest, "class", "calm");
  append_text(rest, "summary", count_of(static_cast<std::size_t>(std::ranges::count(text, '\n')), "more line"));
  append_lines(rest, text);
}

void append_failures(pugi::xml_node body, const HtmlPage& page) {
  if (page.failures.empty()) return;
  append_text(body, "h2", "Failures");
  if (!page.failed.empty()) append_text(body, "pre", page.failed);
  std::set<std::size_t> kinds;
  std::size_t drawn = 0;
  for (const HtmlFailure& failure : page.failures) {
    pugi::xml_node details = body.append_child("details");
    set(details, "class", "failure");
    if (kinds.insert(failure.kind).second && kinds.size() <= kOpenKinds) set(details, "open", "open");
    pugi::xml_node head = details.append_child("summary");
    set(append_text(head, "span", failure.word), "class", outcome_class(Urgency::bad));
    head.append_child(pugi::node_pcdata).set_value(" ");
    set(append_text(head, "a", failure.head), "href", "#" + case_anchor(failure.index));
    if (failure.diagnosis && drawn < kDrawnFailures) {
      drawn += append_diagnosis(details, *failure.diagnosis, failure.index) ? 1 : 0;
    }
    append_words(details, failure.text);
    if (failure.rerun.empty()) continue;
    pugi::xml_node rerun = append_text(details, "p", "rerun: ");
    append_text(rerun, "code", failure.rerun);
  }
}

// The counts of one cell of the overview.
struct Cell {
  std::size_t cases = 0;
  std::size_t passed = 0;
  const HtmlCase* shown = nullptr;  // the first case of the highest urgency

  void add(const HtmlCase& c) {
    ++cases;
    passed += c.outcome == CaseOutcome::pass ? 1 : 0;
    if (shown == nullptr || c.urgency > shown->urgency) shown = &c;
  }
};

void append_overview(pugi::xml_node body, const std::vector<HtmlCase>& cases) {
  using Rows = std::vector<std::pair<std::string, std::map<std::string, Cell>>>;  // in the order of their first case
  std::vector<std::pair<std::string, Rows>> suites;
  std::vector<std::string> columns;
  const auto entry_of = [](auto& list, const std::string& name) -> auto& {
    auto entry = std::ranges::find(list, name, [](const auto& pair) -> const auto& { return pair.first; });
    if (entry == list.end()) entry = list.insert(entry, {name, {}});
    return entry->second;
  };
  for (const HtmlCase& c : cases) {
    if (std::ranges::find(columns, c.column) == columns.end()) columns.push_back(c.column);
    entry_of(entry_of(suites, c.suite), c.model)[c.column].add(c);
  }
  std::ranges::sort(columns);
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
        const Cell& cell = found->second;
        const std::string text = cell.passed == cell.cases ? fmt::format("{}", cell.cases)
                                                           : fmt::format("{} of {}", cell.passed, cell.cases);
        pugi::xml_node link = append_text(append_cell(row, "", outcome_class(cell.shown->urgency)), "a", text);
        set(link, "href", "#" + case_anchor(cell.shown->index));
      }
    }
  }
}

void append_pools(pugi::xml_node body, const std::vector<HtmlPool>& pools) {
  if (pools.empty()) return;
  append_text(body, "h2", "Pools");
  pugi::xml_node table = append_table(body, {"pool", "ready after", "cases", "ended", "hosts", "worker"});
  for (const HtmlPool& pool : pools) {
    pugi::xml_node row = table.append_child("tr");
    append_cell(row, to_string(pool.id));
    append_cell(row, pool.ready_ms < 0 ? "never" : format_duration(pool.ready_ms), "number");
    append_cell(row, std::to_string(pool.cases), "number");
    append_cell(row, pool.end);
    append_cell(row, pool.hosts);
    append_cell(row, pool.worker);
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

void append_cases(pugi::xml_node body, const std::vector<HtmlCase>& cases) {
  if (cases.empty()) return;
  append_text(body, "h2", "Cases");
  append_text(body, "p", "Error over bound is that of the check which came nearest to its bound: above 1 it is wrong.");
  const bool trends = std::ranges::any_of(cases, [](const HtmlCase& c) { return !c.earlier.empty(); });
  std::vector<std::string> head{"", "outcome", "time", "case", "backend", "error over bound", "reason"};
  if (trends) {
    append_text(body, "p",
                "Earlier runs are recorded ones, the oldest first: the first letter of each outcome, and the least and "
                "the largest time of those that passed.");
    head.insert(head.begin() + 3, "earlier runs");
  }
  pugi::xml_node table = append_table(body, head);
  for (const HtmlCase& c : cases) {
    pugi::xml_node row = table.append_child("tr");
    set(row, "id", case_anchor(c.index));
    append_cell(row, std::to_string(c.index + 1), "number");
    append_cell(row, c.word, outcome_class(c.urgency));
    append_cell(row, format_duration(c.ms), "number");
    if (trends) append_trend(row, c.earlier);
    append_cell(row, c.id);
    append_cell(row, c.backend);
    append_cell(row, c.nearest);
    append_cell(row, c.note);
  }
}

}  // namespace

std::string html_text(const HtmlPage& page) {
  const HtmlDocument document("cp-pool: " + page.title);
  pugi::xml_node body = document.body();
  append_text(body, "h1", page.title);
  append_text(body, "p", page.run);
  set(append_text(body, "p", page.ledger), "class", page.good ? "pass" : "bad");
  if (!page.summary.empty()) append_text(body, "pre", page.summary);
  append_failures(body, page);
  append_overview(body, page.cases);
  page.features.append_to(body);
  append_timeline(body, page.timeline);
  append_section(body, "How fast", page.perf);
  append_section(body, "Where the time went", page.timings);
  append_pools(body, page.pools);
  append_cases(body, page.cases);
  return document.text();
}

}  // namespace cp_pool
