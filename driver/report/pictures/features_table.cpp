#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "driver/core/mapped.h"
#include "driver/report/case_text.h"
#include "driver/report/html_document.h"
#include "driver/report/pictures/pictures.h"
#include "driver/report/pictures/svg.h"

namespace cp_pool {
namespace {

struct CaseFeature {
  const char* name;
  bool (*has)(const Case& c);
};

bool has_window(const Case& c) {
  return c.window != std::array<std::int64_t, 2>{kInfiniteWindow, kInfiniteWindow};
}

constexpr CaseFeature kFeatures[] = {
    {"no mask", [](const Case& c) { return !c.causal && !has_window(c) && c.chunk == 0 && c.mask.empty(); }},
    {"causal", [](const Case& c) { return c.causal; }},
    {"window", [](const Case& c) { return has_window(c); }},
    {"chunk", [](const Case& c) { return c.chunk > 0; }},
    {"GQA", [](const Case& c) { return c.kv_heads < c.heads; }},
    {"MLA", [](const Case& c) { return c.head_dim_qk != c.head_dim_v; }},
    {"bias", [](const Case& c) { return c.bias.has_value(); }},
    {"softmax off_by_one", [](const Case& c) { return c.softmax == SoftmaxType::off_by_one; }},
    {"softmax learnable", [](const Case& c) { return c.softmax == SoftmaxType::learnable; }},
    {"max_logit", [](const Case& c) { return c.max_logit; }},
    {"mask of slices", [](const Case& c) { return !c.mask.empty(); }},
    {"softcap", [](const Case& c) { return c.softcap != 0; }},
    {"FP8", [](const Case& c) { return c.fp8.has_value(); }},
    {"large scores", [](const Case& c) { return c.input_scale > 1 || c.score_offset != 0; }},
    {"unequal q and kv", [](const Case& c) { return c.seqlen_q != c.seqlen_kv || c.seqlens_kv.has_value(); }},
    {"bshd", [](const Case& c) { return c.layout == Layout::bshd; }},
    {"sbhd", [](const Case& c) { return c.layout == Layout::sbhd; }},
    {"thd", [](const Case& c) { return c.layout == Layout::thd && !c.pad_between_seqs; }},
    {"thd with padding", [](const Case& c) { return c.layout == Layout::thd && c.pad_between_seqs; }},
    {"forward only", [](const Case& c) { return !c.training; }},
    {"deterministic", [](const Case& c) { return c.deterministic; }},
    {"strided", [](const Case& c) { return c.strided; }},
    {"fp32", [](const Case& c) { return c.dtype == DType::fp32; }},
    {"bf16", [](const Case& c) { return c.dtype == DType::bf16; }},
    {"fp16", [](const Case& c) { return c.dtype == DType::fp16; }},
};

// Draws the shares of pass, other and bad outcomes; the counts beside it say the same.
void append_parts(pugi::xml_node cell, const std::array<std::size_t, 3>& by_urgency, std::size_t cases) {
  pugi::xml_node svg =
      append(cell, "svg",
             {{"class", "parts"}, {"viewBox", "0 0 100 10"}, {"preserveAspectRatio", "none"}, {"aria-hidden", "true"}});
  double x = 0;
  for (std::size_t kind = 0; kind < by_urgency.size(); ++kind) {
    if (by_urgency.at(kind) == 0) continue;
    const double width = 100.0 * static_cast<double>(by_urgency.at(kind)) / static_cast<double>(cases);
    // Passes are low, and bad outcomes are high.
    const double height = kind == static_cast<std::size_t>(Urgency::bad) ? 10 : 5;
    append_rect(svg, {.x = x, .y = 10 - height, .width = width, .height = height}, std::string{kOutcomeFills.at(kind)});
    x += width;
  }
}

struct FeatureRow : CaseGroup {
  std::string name;
  std::map<CaseOutcome, std::vector<const CaseFinished*>> by_outcome;  // in the order of the list of cases
};
using FeatureRows = std::map<std::size_t, FeatureRow>;  // in the order of the table

void count_features(const CaseFinished& event, FeatureRows& rows) {
  const auto count = [&](std::size_t order, const std::string& name) {
    FeatureRow& row = rows[order];
    row.name = name;
    row.add(event);
    row.by_outcome[event.outcome].push_back(&event);
  };
  std::size_t order = 0;
  const Case* const c = event.payload->attention();
  for (const CaseFeature& feature : kFeatures) {
    if (c != nullptr && feature.has(*c)) count(order, feature.name);
    ++order;
  }
  const int ranks = c != nullptr ? c->cp_size : event.payload->ranks();
  count(order + static_cast<std::size_t>(ranks), fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s"));
}

}  // namespace

void append_features(pugi::xml_node parent, const RunReport& run) {
  FeatureRows rows;
  for (const ReportedCase* const c : run.listed_cases()) count_features(c->end(), rows);
  if (rows.empty()) return;
  append_text(parent, "h2", "Outcomes by feature");
  append_text(parent, "p", "A case counts for each feature that it has.");
  std::set<CaseOutcome> outcomes;
  for (const auto& [order, row] : rows) {
    for (const auto& [outcome, cases] : row.by_outcome) outcomes.insert(outcome);
  }
  std::vector<std::string> head{"feature", "cases"};
  for (const CaseOutcome outcome : outcomes) head.emplace_back(to_string(outcome));
  head.emplace_back("parts");
  pugi::xml_node table = append_table(parent, head);
  for (const auto& [order, row] : rows) {
    pugi::xml_node line = table.append_child("tr");
    append_cell(line, row.name);
    append_cell(line, std::to_string(row.cases), "number");
    for (const CaseOutcome outcome : outcomes) {
      const auto found = row.by_outcome.find(outcome);
      if (found == row.by_outcome.end()) {
        append_cell(line, "", "number");
        continue;
      }
      const auto& cases = found->second;
      // An expected failure is not bad.
      const Urgency worst = std::ranges::max(mapped(cases, [](const auto* event) { return urgency_of(*event); }));
      pugi::xml_node cell = append_cell(line, "", fmt::format("number {}", outcome_class(worst)).c_str());
      set(append_text(cell, "a", std::to_string(cases.size())), "href", "#" + case_anchor(cases.front()->index));
    }
    append_parts(append_cell(line, "", "bar"), row.by_urgency, row.cases);
  }
}

}  // namespace cp_pool
