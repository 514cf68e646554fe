// A line of `cp-pool shell`: what it asks for.
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
  std::size_t least = 0;  // of its arguments
  std::size_t most = 0;
  bool takes_options = false;  // behind them, those of the subcommand that it stands for
};
std::span<const ShellVerbFacts> shell_verbs();  // in the order of the help

// The table of them. Lines.
std::string shell_help();

struct ShellLine {
  ShellVerb verb = ShellVerb::nothing;
  std::vector<std::string> arguments;  // up to the first word that begins with '-'
  std::vector<std::string> options;    // from there on
};

// KEY=VALUE, where an ID would have a '/' before its first '='.
bool is_field_word(std::string_view word);

// Words are quoted as in a POSIX shell. A line that begins with a case (an ID, a file, fields, JSON) submits it; an
// empty one, and one that begins with '#', asks for nothing. Throws CommandError (usage).
ShellLine parse_shell_line(std::string_view text);

}  // namespace cp_pool
