// Parses a line of `cp-pool shell`.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool {

enum class ShellVerb { nothing, submit, set, unset, again, diff, why, dump, list, explain, status, help, quit };

struct ShellVerbFacts {
  ShellVerb verb;
  std::string_view name;
  std::string_view arguments;  // as the help shows them
  std::string_view meaning;
  std::size_t least = 0;  // number of arguments
  std::size_t most = 0;
  bool takes_options = false;  // options of the subcommand behind the arguments
};
std::span<const ShellVerbFacts> shell_verbs();  // in the order of the help

// Returns the table of verbs, as lines.
std::string shell_help();

struct ShellLine {
  ShellVerb verb = ShellVerb::nothing;
  std::vector<std::string> arguments;     // up to the first word that begins with '-'
  std::vector<std::string> options = {};  // from there on
};

// True for KEY=VALUE. An ID has a '/' before its first '='.
bool is_field_word(std::string_view word);

// Splits the line into words as a POSIX shell does. A line that begins with a case (an ID, a file, fields, JSON)
// submits it. A line that is empty or begins with '#' does nothing. Throws CommandError (usage).
ShellLine parse_shell_line(std::string_view text);

}  // namespace cp_pool
