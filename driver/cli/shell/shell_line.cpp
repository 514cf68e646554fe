#include "driver/cli/shell/shell_line.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "cases/did_you_mean.h"
#include "driver/cli/select/submitted_case.h"
#include "driver/cli/shell_words.h"
#include "driver/core/exit_code.h"
#include "driver/core/mapped.h"

namespace cp_pool {
namespace {

constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();

constexpr auto kVerbs = std::to_array<ShellVerbFacts>({
    {ShellVerb::submit, "submit", "CASE",
     "Run a case: its ID, a JSON file, or fields: cp_size=2 seqlen_q=64 ..; CASE alone does the same", 1, kAny, true},
    {ShellVerb::set, "set", "KEY=VALUE ..", "Change fields of the cases that follow; without a field: show the changes",
     0, kAny},
    {ShellVerb::unset, "unset", "[KEY ..]", "Remove the changes of these fields, or all changes", 0, kAny},
    {ShellVerb::again, "again", "", "Run the last case again, with the current changes", 0, 0, true},
    {ShellVerb::diff, "diff", "", "Show the differences between the last two results"},
    {ShellVerb::why, "why", "", "Show the last failure in full, with its diagnosis"},
    {ShellVerb::dump, "dump", "[DIR]", "Run the last case again and let the worker write all tensors to DIR", 0, 1,
     true},
    {ShellVerb::list, "list", "[EXPR]", "List the cases that a filter selects", 0, kAny, true},
    {ShellVerb::explain, "explain", "[CASE]", "Draw a case: this one, or the last", 0, kAny, true},
    {ShellVerb::status, "status", "", "Show the state of the service that runs the cases", 0, 0, true},
    {ShellVerb::help, "help", "[COMMAND]", "Show this table, or the help of a command of cp-pool", 0, 1},
    {ShellVerb::quit, "quit", "", "End the shell, as Ctrl-D does"},
});

const ShellVerbFacts* find_verb(std::string_view name) {
  if (name == "exit") name = "quit";
  const auto* const verb = std::ranges::find(kVerbs, name, &ShellVerbFacts::name);
  return verb == kVerbs.end() ? nullptr : verb;
}

// True if the word can only be a case. A word that is neither is taken for a misspelt verb and not for an ID, which has
// a '/'.
bool looks_like_a_case(const std::string& word) {
  return word.find('/') != std::string::npos || is_field_word(word) || (word != "-" && !is_id(word));
}

[[noreturn]] void refuse_word(const std::string& word) {
  const auto names = mapped(kVerbs, [](const ShellVerbFacts& verb) { return std::string{verb.name}; });
  throw CommandError(ExitCode::usage, "'{}' is no command of the shell and no case{}; help lists the commands", word,
                     did_you_mean(word, names));
}

void check_counts(const ShellVerbFacts& verb, const ShellLine& line) {
  if (line.arguments.size() < verb.least) {
    throw CommandError(ExitCode::usage, "{} needs {}", verb.name, verb.arguments);
  }
  if (line.arguments.size() > verb.most) {
    throw CommandError(ExitCode::usage, "{}: unexpected argument '{}'", verb.name, line.arguments[verb.most]);
  }
  if (!verb.takes_options && !line.options.empty()) {
    throw CommandError(ExitCode::usage, "{} has no options: '{}'", verb.name, line.options.front());
  }
}

}  // namespace

std::span<const ShellVerbFacts> shell_verbs() {
  return kVerbs;
}

std::string shell_help() {
  std::string text;
  for (const ShellVerbFacts& verb : kVerbs) {
    const std::string call = fmt::format("{}{}{}", verb.name, verb.arguments.empty() ? "" : " ", verb.arguments);
    text += fmt::format("  {:<17}  {}\n", call, verb.meaning);
  }
  return text +
         "submit, again, dump, list, explain and status take the options of the commands of cp-pool as well: ID "
         "--timeout 5s\n"
         "Tab completes, Ctrl-C cancels the case that runs.\n";
}

bool is_field_word(std::string_view word) {
  const std::size_t equals = word.find('=');
  return equals != std::string_view::npos && word.substr(0, equals).find_first_of("/-{") == std::string_view::npos;
}

ShellLine parse_shell_line(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos || text[begin] == '#') return {};
  // Pasted JSON has quotes of its own.
  if (text[begin] == '{') {
    const std::size_t end = text.find_last_not_of(" \t\r\n");
    return {.verb = ShellVerb::submit, .arguments = {std::string{text.substr(begin, end + 1 - begin)}}};
  }
  std::optional<std::vector<std::string>> words = split_words(text);
  if (!words) throw CommandError(ExitCode::usage, "a quote is not closed");
  const std::string& first = words->front();
  const ShellVerbFacts* const verb = find_verb(first);
  if (verb == nullptr && !looks_like_a_case(first)) refuse_word(first);
  ShellLine line;
  line.verb = verb == nullptr ? ShellVerb::submit : verb->verb;
  const auto arguments = std::next(words->begin(), verb == nullptr ? 0 : 1);
  const auto options =
      std::find_if(arguments, words->end(), [](const std::string& word) { return word.starts_with('-'); });
  line.arguments.assign(arguments, options);
  line.options.assign(options, words->end());
  if (verb != nullptr) check_counts(*verb, line);
  return line;
}

}  // namespace cp_pool
