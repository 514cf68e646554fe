// Parses command lines in tests.
#pragma once

#include <string>
#include <vector>

#include "driver/cli/commands/command.h"
#include "driver/cli/shell_words.h"
#include "driver/testing/command_error.h"

namespace cp_pool::test {

// Returns the words of a line, as a shell reads it.
inline std::vector<std::string> words_of(const std::string& line) {
  return split_words(line).value();
}

// Throws std::bad_cast if another command was asked for.
template <typename Options>
Options parse_as(const std::vector<std::string>& words) {
  return dynamic_cast<const CommandWith<Options>&>(*parse_command_line(words)).options;
}

inline std::string usage_error(const std::vector<std::string>& words) {
  return command_error(ExitCode::usage, [&] { parse_command_line(words); });
}

}  // namespace cp_pool::test
