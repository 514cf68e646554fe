#include "driver/cli/shell/result_diff.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_json.h"
#include "driver/core/figures.h"
#include "driver/report/text_format.h"

namespace cp_pool {

namespace {

constexpr std::size_t kMostOfACell = 48;
constexpr const char* kNothing = "-";  // where only one of the two has a value

struct Row {
  std::string name;
  std::string before;
  std::string now;
  std::string ratio;  // now / before; empty if there is none
};

struct Table {
  std::vector<Row> rows;
  std::vector<std::string> same;  // parts that do not differ and have no row

  void add(std::string name, std::string before, std::string now) {
    if (before != now) rows.push_back({std::move(name), std::move(before), std::move(now), ""});
  }
};

void compare_cases(const Case* before, const Case* now, Table& table) {
  if (before == nullptr || now == nullptr) return;
  for (const CaseField& field : case_fields()) {
    table.add(std::string{field.name}, field_text(field, *before), field_text(field, *now));
  }
}

std::string text_of(const Check& check) {
  if (!check.measured) return fmt::format("{}, no figures", check.ok ? "ok" : "WRONG");
  return fmt::format("{} {} / {} = {}", check.ok ? "ok" : "WRONG", format_figure(check.error),
                     format_figure(check.bound), ratio_text(check));
}

using Texts = std::map<std::pair<std::string, int>, std::string>;  // by tensor and rank

Texts texts_of(const std::vector<Check>& checks) {
  Texts out;
  for (const Check& check : checks) out.emplace(std::pair{check.tensor, check.rank}, text_of(check));
  return out;
}

Texts texts_of(const std::vector<protocol::RankResult>& ranks) {
  Texts out;
  for (const protocol::RankResult& rank : ranks) {
    if (!rank.output_hash.empty()) out.emplace(std::pair{"outputs", rank.rank}, rank.output_hash);
  }
  return out;
}

// Adds rows in the order of tensors. Returns how many texts are equal.
std::size_t compare_texts(const Texts& before, const Texts& now, Table& table) {
  Texts all = before;
  all.insert(now.begin(), now.end());
  std::size_t equal = 0;
  const auto text_in = [](const Texts& texts, const Texts::key_type& key) {
    const auto found = texts.find(key);
    return found == texts.end() ? std::string{kNothing} : found->second;
  };
  for (const auto& [key, unused] : all) {
    std::string one = text_in(before, key);
    std::string other = text_in(now, key);
    equal += one == other ? 1 : 0;
    table.add(fmt::format("{}, rank {}", key.first, key.second), std::move(one), std::move(other));
  }
  return equal;
}

void add_time(std::string name, std::optional<double> before, std::optional<double> now, Table& table) {
  if (!before && !now) return;
  const auto text = [](std::optional<double> ms) { return ms ? format_duration(*ms) : std::string{kNothing}; };
  Row row{.name = std::move(name), .before = text(before), .now = text(now), .ratio = ""};
  if (before && now && *before > 0) row.ratio = fmt::format("x {:.2f}", *now / *before);
  table.rows.push_back(std::move(row));
}

void compare_times(const CaseFinished& before, const CaseFinished& now, Table& table) {
  add_time("time", before.duration_ms, now.duration_ms, table);
  std::map<std::string, double> all = before.timings_ms;
  all.insert(now.timings_ms.begin(), now.timings_ms.end());
  const auto time_in = [](const CaseFinished& result, const std::string& name) -> std::optional<double> {
    const auto found = result.timings_ms.find(name);
    return found == result.timings_ms.end() ? std::nullopt : std::optional{found->second};
  };
  for (const auto& [name, unused] : all) add_time("  " + name, time_in(before, name), time_in(now, name), table);
  const auto step = [](const CaseFinished& result) {
    return result.perf ? std::optional{result.perf->ms()} : std::nullopt;
  };
  add_time("step, median", step(before), step(now), table);
}

std::string text_of(const Table& table) {
  std::vector<Row> rows{{.name = "", .before = "before", .now = "now", .ratio = ""}};
  for (const Row& row : table.rows) {
    rows.push_back({row.name, cut_middle(row.before, kMostOfACell), cut_middle(row.now, kMostOfACell), row.ratio});
  }
  std::size_t name_width = 0;
  std::size_t before_width = 0;
  std::size_t now_width = 0;
  for (const Row& row : rows) {
    name_width = std::max(name_width, width_of(row.name));
    before_width = std::max(before_width, width_of(row.before));
    now_width = std::max(now_width, width_of(row.now));
  }
  std::string out;
  for (const Row& row : rows) {
    std::string line = fmt::format("{:<{}}  {:<{}}  {:<{}}  {}", row.name, name_width, row.before, before_width,
                                   row.now, now_width, row.ratio);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  if (!table.same.empty()) out += fmt::format("the same: {}\n", fmt::join(table.same, ", "));
  return out;
}

std::string in_one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

}  // namespace

std::string result_diff(const CaseFinished& before, const CaseFinished& now) {
  Table table;
  if (before.payload == now.payload) table.same.emplace_back("case");
  compare_cases(before.payload->attention(), now.payload->attention(), table);
  const std::string outcome{to_string(now.outcome)};
  if (before.outcome == now.outcome) table.same.push_back("outcome " + outcome);
  table.add("outcome", std::string{to_string(before.outcome)}, outcome);
  table.add("reason", in_one_line(before.reason), in_one_line(now.reason));
  table.add("backend", before.backend, now.backend);
  const std::size_t checks = compare_texts(texts_of(before.checks), texts_of(now.checks), table);
  if (checks > 0) table.same.push_back(count_of(checks, "check"));
  const std::size_t outputs = compare_texts(texts_of(before.ranks), texts_of(now.ranks), table);
  if (outputs > 0) table.same.push_back("outputs of " + count_of(outputs, "rank"));
  compare_times(before, now, table);
  return text_of(table);
}

}  // namespace cp_pool
