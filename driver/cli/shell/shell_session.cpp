#include "driver/cli/shell/shell_session.h"

#include <algorithm>
#include <initializer_list>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_json.h"
#include "driver/cli/select/submitted_case.h"
#include "driver/core/exit_code.h"
#include "driver/core/figures.h"
#include "driver/core/mapped.h"
#include "driver/report/case_text.h"
#include "driver/report/text_format.h"

namespace cp_pool {
namespace {

constexpr std::size_t kMostOfACell = 48;
constexpr const char* kNothing = "-";  // where only one of the two has a value

struct Row {
  std::string name = {};
  std::string before;
  std::string now;
  std::string ratio = {};  // now / before; empty if there is none
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

template <typename Map>
std::optional<typename Map::mapped_type> value_in(const Map& map, const typename Map::key_type& key) {
  const auto found = map.find(key);
  return found == map.end() ? std::nullopt : std::optional(found->second);
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
  for (const auto& [key, unused] : all) {
    std::string one = value_in(before, key).value_or(kNothing);
    std::string other = value_in(now, key).value_or(kNothing);
    equal += one == other ? 1 : 0;
    table.add(fmt::format("{}, rank {}", key.first, key.second), std::move(one), std::move(other));
  }
  return equal;
}

void add_time(std::string name, std::optional<double> before, std::optional<double> now, Table& table) {
  if (!before && !now) return;
  const auto text = [](std::optional<double> ms) { return ms ? format_duration(*ms) : std::string{kNothing}; };
  Row row{.name = std::move(name), .before = text(before), .now = text(now)};
  if (before && now && *before > 0) row.ratio = fmt::format("x {:.2f}", *now / *before);
  table.rows.push_back(std::move(row));
}

void compare_times(const CaseFinished& before, const CaseFinished& now, Table& table) {
  add_time("time", before.duration_ms, now.duration_ms, table);
  std::map<std::string, double> all = before.timings_ms;
  all.insert(now.timings_ms.begin(), now.timings_ms.end());
  for (const auto& [name, unused] : all) {
    add_time("  " + name, value_in(before.timings_ms, name), value_in(now.timings_ms, name), table);
  }
  const auto step = [](const CaseFinished& result) {
    return result.perf ? std::optional{result.perf->ms()} : std::nullopt;
  };
  add_time("step, median", step(before), step(now), table);
}

std::string text_of(const Table& table) {
  std::vector<Row> rows{{.before = "before", .now = "now"}};
  for (const Row& row : table.rows) {
    rows.push_back({row.name, cut_middle(row.before, kMostOfACell), cut_middle(row.now, kMostOfACell), row.ratio});
  }
  const auto width = [&rows](std::string Row::* cell) {
    return std::ranges::max(mapped(rows, [cell](const Row& row) { return width_of(row.*cell); }));
  };
  std::string out;
  for (const Row& row : rows) {
    std::string line = fmt::format("{:<{}}  {:<{}}  {:<{}}  {}", row.name, width(&Row::name), row.before,
                                   width(&Row::before), row.now, width(&Row::now), row.ratio);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  if (!table.same.empty()) out += fmt::format("the same: {}\n", fmt::join(table.same, ", "));
  return out;
}

using Words = ShellSession::Words;

constexpr const char* kDumpFolder = "cp-pool-dump";

Words join(std::initializer_list<Words> parts) {
  Words words;
  for (const Words& part : parts) words.insert(words.end(), part.begin(), part.end());
  return words;
}

std::string_view key_of(std::string_view edit) {
  return edit.substr(0, edit.find('='));
}

// Returns the case that the words name, as submit takes it. Fields become JSON. Throws CommandError or
// CaseError.
std::string case_argument(const std::string& command, const Words& words) {
  if (is_field_word(words.front())) {
    Json json = Json::object();
    for (search::FixedField& fixed : fixed_fields(words)) json[std::string{fixed.field->name}] = std::move(fixed.value);
    return json.dump();
  }
  if (words.front() == "-") throw CommandError(ExitCode::usage, "a stream of cases has no place in the shell");
  if (words.size() > 1) {
    throw CommandError(ExitCode::usage, "{} takes one case: unexpected argument '{}'", command, words[1]);
  }
  return words.front();
}

}  // namespace

std::string result_diff(const CaseFinished& before, const CaseFinished& now) {
  Table table;
  if (before.payload == now.payload) table.same.emplace_back("case");
  compare_cases(before.payload->attention(), now.payload->attention(), table);
  const std::string outcome{to_string(now.outcome)};
  if (before.outcome == now.outcome) table.same.push_back("outcome " + outcome);
  table.add("outcome", std::string{to_string(before.outcome)}, outcome);
  table.add("reason", on_one_line(before.reason), on_one_line(now.reason));
  table.add("backend", before.backend, now.backend);
  const std::size_t checks = compare_texts(texts_of(before.checks), texts_of(now.checks), table);
  if (checks > 0) table.same.push_back(count_of(checks, "check"));
  const std::size_t outputs = compare_texts(texts_of(before.ranks), texts_of(now.ranks), table);
  if (outputs > 0) table.same.push_back("outputs of " + count_of(outputs, "rank"));
  compare_times(before, now, table);
  return text_of(table);
}

ShellSession::ShellSession(Options options, Functions functions)
    : options_(std::move(options)), functions_(std::move(functions)) {}

int ShellSession::carry_out(const ShellLine& line) {
  switch (line.verb) {
    case ShellVerb::nothing:
      break;
    case ShellVerb::submit:
      return submit({.argument = case_argument("submit", line.arguments), .options = line.options}, {});
    case ShellVerb::set:
      return set(line.arguments);
    case ShellVerb::unset:
      return unset(line.arguments);
    case ShellVerb::again:
      return submit_again(line.options);
    case ShellVerb::diff:
      return diff();
    case ShellVerb::why:
      return why();
    case ShellVerb::dump:
      return dump(line);
    case ShellVerb::list:
      return list(line);
    case ShellVerb::explain:
      return explain(line);
    case ShellVerb::status:
      return functions_.run(join({{"status", "--name=" + functions_.service()}, line.options}));
    case ShellVerb::help:
      return help(line);
    case ShellVerb::quit:
      ended_ = true;
      break;
  }
  return to_int(ExitCode::ok);
}

std::string ShellSession::prompt() const {
  return edits_.empty() ? "cp-pool> " : fmt::format("cp-pool [{}]> ", fmt::join(edits_, " "));
}

Words ShellSession::case_words(const std::string& argument) const {
  Words words{argument};
  if (is_id(argument)) words = join({words, options_.lookup});
  for (const std::string& edit : edits_) words.push_back("--set=" + edit);
  return words;
}

const ShellSession::LastCase& ShellSession::last_case() const {
  if (!last_case_) throw CommandError(ExitCode::usage, "no case has been submitted yet");
  return *last_case_;
}

int ShellSession::submit(LastCase submitted, const Words& more) {
  Submitted done = functions_.submit(
      join({{"submit"}, case_words(submitted.argument), options_.execution, submitted.options, more}));
  // A refused case does not replace the last one. An interrupted case has no result to compare.
  if (done.result) last_case_ = std::move(submitted);
  if (!done.result || done.result->outcome == CaseOutcome::not_run) return done.code;
  before_last_ = std::exchange(last_, std::move(done.result));
  if (is_failure(last_->outcome) || last_->outcome == CaseOutcome::infra) last_failure_ = last_;
  return done.code;
}

int ShellSession::set(const Words& edits) {
  (void)fixed_fields(edits);
  for (const std::string& edit : edits) {
    std::erase_if(edits_, [&](const std::string& earlier) { return key_of(earlier) == key_of(edit); });
    edits_.push_back(edit);
  }
  functions_.print(edits_.empty() ? "no field is changed\n"
                                  : fmt::format("changed in the cases that follow: {}\n", fmt::join(edits_, " ")));
  return to_int(ExitCode::ok);
}

int ShellSession::unset(const Words& keys) {
  Words left = edits_;
  if (keys.empty()) left.clear();
  for (const std::string& key : keys) {
    if (std::erase_if(left, [&](const std::string& edit) { return key_of(edit) == key; }) == 0) {
      throw CommandError(ExitCode::usage, "unset: the field '{}' is not changed", key);
    }
  }
  edits_ = std::move(left);
  return set({});
}

int ShellSession::diff() const {
  if (!before_last_) {
    throw CommandError(ExitCode::usage, "diff needs two results; so far there is {}", last_ ? "one" : "none");
  }
  const bool same = before_last_->id == last_->id;
  functions_.print(same ? last_->id + '\n' : fmt::format("before: {}\nnow:    {}\n", before_last_->id, last_->id));
  functions_.print(result_diff(*before_last_, *last_));
  return to_int(ExitCode::ok);
}

int ShellSession::why() const {
  if (!last_failure_) throw CommandError(ExitCode::usage, "no case has failed yet");
  const CaseFinished& failed = *last_failure_;
  functions_.print(
      fmt::format("{}  {} after {}\n", to_string(failed.outcome), failed.id, format_duration(failed.duration_ms)) +
      prefix_lines(failure_details(failed, DrawMask::whole), "    ") + prefix_lines(stderr_details(failed), "    ") +
      fmt::format("    rerun: {}\n", failed.rerun));
  return to_int(ExitCode::ok);
}

int ShellSession::dump(const ShellLine& line) {
  const std::string folder = line.arguments.empty() ? kDumpFolder : line.arguments.front();
  const int code = submit_again(join({{"--dump=" + folder}, line.options}));
  const bool ran = code == to_int(ExitCode::ok) || code == to_int(ExitCode::failed);
  if (ran) functions_.print(fmt::format("dump: {}\n", folder));
  return code;
}

int ShellSession::list(const ShellLine& line) {
  Words filter;
  if (!line.arguments.empty()) filter.push_back(fmt::format("--filter={}", fmt::join(line.arguments, " ")));
  return functions_.run(join({{"list"}, options_.lookup, options_.adapter, filter, line.options}));
}

int ShellSession::explain(const ShellLine& line) {
  const std::string argument = line.arguments.empty() ? last_case().argument : case_argument("explain", line.arguments);
  return functions_.run(join({{"explain"}, case_words(argument), line.options}));
}

int ShellSession::help(const ShellLine& line) {
  if (!line.arguments.empty()) return functions_.run({"help", line.arguments.front()});
  functions_.print(shell_help());
  return to_int(ExitCode::ok);
}

}  // namespace cp_pool
