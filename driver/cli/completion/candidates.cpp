#include "driver/cli/completion/candidates.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <iterator>
#include <optional>
#include <span>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cases/case_json.h"
#include "driver/cli/history/run_records.h"
#include "driver/cli/program_paths.h"
#include "driver/cli/select/selection.h"

namespace cp_pool {
namespace {

using Words = std::vector<std::string>;

// A command line as far as it is typed, with its subcommand.
struct Typed {
  const CLI::App& app;
  const CLI::App& command;
  std::span<const std::string> before;  // the words between the subcommand and the last word
  std::string last;
};

const CLI::Option* option_named(const CLI::App& command, const std::string& name) {
  return name.starts_with('-') ? command.get_option_no_throw(name) : nullptr;
}

void offer(Candidates& out, const std::string& typed, const std::string& word, const std::string& help = "") {
  if (word.starts_with(typed)) out.words.push_back({word, help});
}

void offer_options(Candidates& out, const CLI::App& command, const std::string& typed) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) {
      offer(out, typed, "--" + name, option->get_description());
    }
    for (const std::string& name : option->get_snames()) {
      offer(out, typed, "-" + name, option->get_description());
    }
  }
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

void offer_commands(Candidates& out, const CLI::App& app, const std::string& typed) {
  for (const CLI::App* command : commands_of(app)) {
    offer(out, typed, command->get_name(), command->get_description());
  }
}

// Returns the values that an option has so far on the command line.
Words values_of(const Typed& typed, const std::string& name) {
  Words values;
  bool of_it = false;
  for (const std::string& word : typed.before) {
    if (word.starts_with(name + "=")) values.push_back(word.substr(name.size() + 1));
    if (word.starts_with('-')) {
      of_it = word == name;
    } else if (of_it) {
      values.push_back(word);
    }
  }
  return values;
}

// Offers the IDs of the matrices that are named, or of all shipped ones if none is.
void offer_ids(Candidates& out, const Typed& typed, const std::string& word) {
  SelectionOptions options;
  options.matrices = values_of(typed, "--matrix");
  if (options.matrices.empty()) options.matrices = shipped_matrices();
  const Words sizes = values_of(typed, "--size");
  options.size = sizes.empty() ? "small" : sizes.back();
  try {
    for (const SelectedCase& selected : select_cases(options).cases) offer(out, word, selected.matrix_case.id);
  } catch (const std::exception&) {
    // A matrix that cannot be read has no IDs.
  }
}

// Offers KEY=VALUE for --set.
void offer_edits(Candidates& out, const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos) {
    for (const std::string& name : case_field_names()) offer(out, word, name + "=");
    return;
  }
  const std::string key = word.substr(0, equals);
  const CaseField* field = find_case_field(key);
  if (field == nullptr) return;
  Words values = field->names == nullptr ? Words{} : field->names();
  if (field->kind == CaseField::Kind::boolean) values = {"true", "false"};
  for (const std::string& value : values) offer(out, word, fmt::format("{}={}", key, value));
}

void offer_runs(Candidates& out, const Typed& typed, const std::string& word) {
  const Words folders = values_of(typed, "--record-dir");
  offer(out, word, "last", "the run that began last");
  try {
    const auto named = folders.empty() ? std::nullopt : std::optional<std::filesystem::path>(folders.back());
    for (const RunRecord& record : kept_runs(named)) offer(out, word, record.id);
  } catch (const std::exception&) {
    // A folder that cannot be read has no runs.
  }
}

void offer_values(Candidates& out, const Typed& typed, const CLI::Option& option, const std::string& word) {
  const std::string type = option.get_positional() ? option.get_name(true) : option.get_type_name();
  for (const std::string& each : words_of_choice(option)) offer(out, word, each);
  if (type == "NAME|FILE") {
    for (const std::string& name : shipped_matrices()) offer(out, word, name, "a shipped matrix");
  }
  if (type == "SIZE") {
    for (const char* size : {"small", "full"}) offer(out, word, size);
  }
  if (type == "KEY=VALUE") offer_edits(out, word);
  if (type == "COMMAND" && option.get_positional()) offer_commands(out, typed.app, word);
  if (type == "RUN|FILE" || type == "RUN" || option.check_lname("baseline")) {
    offer_runs(out, typed, word);
  }
  if (type == "CASE" || option.check_lname("filter")) offer_ids(out, typed, word);
  for (const char* path : {"FILE", "DIR", "PATH", "ADAPTER", "CMD", "CASE"}) {
    out.files = out.files || type.find(path) != std::string::npos;
  }
}

// Returns the option whose value the last word is, or nullptr if it is none.
const CLI::Option* option_before(const Typed& typed) {
  for (std::size_t back = 1; back <= typed.before.size(); ++back) {
    const std::string& word = typed.before[typed.before.size() - back];
    if (!word.starts_with('-')) continue;
    const CLI::Option* option = option_named(typed.command, word);
    if (option == nullptr || option->get_items_expected_max() == 0) return nullptr;
    return back == 1 || option->get_allow_extra_args() ? option : nullptr;
  }
  return nullptr;
}

// Offers values for --option=VALUE. Returns false if the last word has another form.
bool offer_values_behind_equals(Candidates& out, const Typed& typed) {
  const std::size_t equals = typed.last.find('=');
  if (!typed.last.starts_with("--") || equals == std::string::npos) return false;
  const CLI::Option* option = option_named(typed.command, typed.last.substr(0, equals));
  if (option == nullptr) return true;
  offer_values(out, typed, *option, typed.last.substr(equals + 1));
  for (Candidate& candidate : out.words) candidate.word.insert(0, typed.last.substr(0, equals + 1));
  return true;
}

Candidates of_command(const Typed& typed) {
  Candidates out;
  if (offer_values_behind_equals(out, typed)) return out;
  const CLI::Option* option = option_before(typed);
  if (option != nullptr && (!typed.last.starts_with('-') || typed.before.back().starts_with('-'))) {
    offer_values(out, typed, *option, typed.last);
    return out;
  }
  if (typed.last.starts_with('-')) {
    offer_options(out, typed.command, typed.last);
    return out;
  }
  for (const CLI::Option* positional : typed.command.get_options()) {
    if (positional->get_positional()) offer_values(out, typed, *positional, typed.last);
  }
  if (typed.last.empty()) offer_options(out, typed.command, typed.last);
  return out;
}

}  // namespace

Candidates candidates(const CLI::App& app, const std::vector<std::string>& words) {
  Candidates out;
  if (words.empty()) return out;
  const auto command = std::find_if(words.begin(), std::prev(words.end()),
                                    [](const std::string& word) { return !word.starts_with('-'); });
  if (command == std::prev(words.end())) {
    offer_commands(out, app, words.back());
    if (words.back().starts_with('-')) offer_options(out, app, words.back());
    return out;
  }
  const auto commands = commands_of(app);
  const auto named = std::ranges::find(commands, *command, [](const CLI::App* each) { return each->get_name(); });
  if (named == commands.end()) return out;
  return of_command({app, **named, std::span(std::next(command), std::prev(words.end())), words.back()});
}

std::string candidate_lines(const Candidates& candidates) {
  std::string lines;
  for (const Candidate& candidate : candidates.words) {
    lines += candidate.word + (candidate.help.empty() ? "" : '\t' + candidate.help) + '\n';
  }
  return lines + (candidates.files ? "<files>\n" : "");
}

}  // namespace cp_pool
