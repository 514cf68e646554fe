#include "driver/reporters/html_page.h"

#include <algorithm>
#include <array>
#include <map>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <pugixml.hpp>

#include "driver/reporters/text_format.h"
#include "driver/reporters/xml_nodes.h"

namespace cp_pool {

namespace {

// Without characters that XML would escape: a browser takes what stands in <style> as it is.
constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --line: #8884; --pass: #2e9e4f; --bad: #d3382f; --other: #b8860b; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 80em; padding: 0 1em; }
h1 { font-size: 1.4em; } h2 { font-size: 1.15em; margin-top: 2em; }
pre, code, td, th { font-family: ui-monospace, monospace; font-size: 13px; }
pre { overflow-x: auto; margin: .5em 0; white-space: pre-wrap; overflow-wrap: anywhere; }
pre.wide { white-space: pre; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
td, th { border-bottom: 1px solid var(--line); padding: .15em .8em .15em 0; text-align: left; vertical-align: top; }
td.number { text-align: right; white-space: nowrap; }
.pass { color: var(--pass); } .bad { color: var(--bad); font-weight: bold; } .other { color: var(--other); }
details { border-left: 3px solid var(--bad); margin: 1em 0; padding-left: 1em; }
a { color: inherit; }
)";

constexpr std::size_t kOpenFailures = 5;  // of the others a reader sees the first line

// The class that it has in the style.
const char* kind_of(CaseOutcome outcome) {
  constexpr std::array<const char*, 3> kKinds{"pass", "other", "bad"};
  return kKinds.at(static_cast<std::size_t>(urgency_of(outcome)));
}

std::string anchor_of(std::size_t index) {
  return fmt::format("case-{}", index);
}

pugi::xml_node append_cell(pugi::xml_node row, const std::string& text, const char* kind = nullptr) {
  pugi::xml_node cell = append_text(row, "td", text);
  if (kind != nullptr) set(cell, "class", kind);
  return cell;
}

pugi::xml_node append_table(pugi::xml_node parent, const std::vector<std::string>& head) {
  pugi::xml_node table = parent.append_child("table");
  pugi::xml_node row = table.append_child("tr");
  for (const std::string& name : head) append_text(row, "th", name);
  return table;
}

void append_section(pugi::xml_node body, const char* title, const std::string& text) {
  if (text.empty()) return;
  append_text(body, "h2", title);
  set(append_text(body, "pre", text), "class", "wide");
}

void append_failures(pugi::xml_node body, const HtmlPage& page) {
  if (page.failures.empty()) return;
  append_text(body, "h2", "Failures");
  if (!page.failed.empty()) append_text(body, "pre", page.failed);
  std::size_t place = 0;
  for (const HtmlFailure& failure : page.failures) {
    pugi::xml_node details = body.append_child("details");
    if (place++ < kOpenFailures) set(details, "open", "open");
    pugi::xml_node head = details.append_child("summary");
    set(append_text(head, "span", std::string{to_string(failure.outcome)}), "class", kind_of(failure.outcome));
    head.append_child(pugi::node_pcdata).set_value(" ");
    set(append_text(head, "a", failure.head), "href", "#" + anchor_of(failure.index));
    append_text(details, "pre", failure.text);
    if (failure.rerun.empty()) continue;
    pugi::xml_node rerun = append_text(details, "p", "rerun: ");
    append_text(rerun, "code", failure.rerun);
  }
}

// The counts of one cell of the overview.
struct Cell {
  std::size_t cases = 0;
  std::size_t passed = 0;
  const HtmlCase* shown = nullptr;  // the first that did not pass, the bad ones before the others; else the first

  void add(const HtmlCase& c) {
    ++cases;
    passed += c.outcome == CaseOutcome::pass ? 1 : 0;
    if (shown == nullptr || urgency_of(c.outcome) > urgency_of(shown->outcome)) shown = &c;
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
        pugi::xml_node link = append_text(append_cell(row, "", kind_of(cell.shown->outcome)), "a", text);
        set(link, "href", "#" + anchor_of(cell.shown->index));
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
    append_cell(row, fmt::format("{} #{}", pool.id.key, pool.id.generation));
    append_cell(row, pool.ready_ms < 0 ? "never" : format_duration(pool.ready_ms), "number");
    append_cell(row, std::to_string(pool.cases), "number");
    append_cell(row, pool.end);
    append_cell(row, pool.hosts);
    append_cell(row, pool.worker);
  }
}

void append_cases(pugi::xml_node body, const std::vector<HtmlCase>& cases) {
  if (cases.empty()) return;
  append_text(body, "h2", "Cases");
  append_text(body, "p", "Error over bound is that of the check which came nearest to its bound: above 1 it is wrong.");
  pugi::xml_node table = append_table(body, {"", "outcome", "time", "case", "backend", "error over bound", "reason"});
  for (const HtmlCase& c : cases) {
    pugi::xml_node row = table.append_child("tr");
    set(row, "id", anchor_of(c.index));
    append_cell(row, std::to_string(c.index + 1), "number");
    append_cell(row, std::string{to_string(c.outcome)}, kind_of(c.outcome));
    append_cell(row, format_duration(c.ms), "number");
    append_cell(row, c.id);
    append_cell(row, c.backend);
    append_cell(row, c.nearest);
    append_cell(row, c.note);
  }
}

}  // namespace

std::string html_text(const HtmlPage& page) {
  pugi::xml_document document;
  document.append_child(pugi::node_doctype).set_value("html");
  pugi::xml_node root = document.append_child("html");
  set(root, "lang", "en");
  pugi::xml_node head = root.append_child("head");
  set(head.append_child("meta"), "charset", "utf-8");
  append_text(head, "title", "cp-pool: " + page.title);
  append_text(head, "style", kStyle);
  pugi::xml_node body = root.append_child("body");
  append_text(body, "h1", page.title);
  append_text(body, "p", page.run);
  set(append_text(body, "p", page.ledger), "class", page.good ? "pass" : "bad");
  if (!page.summary.empty()) append_text(body, "pre", page.summary);
  append_failures(body, page);
  append_overview(body, page.cases);
  append_section(body, "How fast", page.perf);
  append_section(body, "Where the time went", page.timings);
  append_pools(body, page.pools);
  append_cases(body, page.cases);
  std::ostringstream text;
  // Raw: white space between elements would show.
  document.save(text, "", pugi::format_raw | pugi::format_no_declaration, pugi::encoding_utf8);
  return text.str();
}

}  // namespace cp_pool
