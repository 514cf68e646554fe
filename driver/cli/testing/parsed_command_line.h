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

// `words` are those after cp-pool.
inline std::unique_ptr<Command> parse_words(const std::vector<std::string>& words) {
  std::vector<const char*> argv{"cp-pool"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  return parse_command_line(static_cast<int>(argv.size()), argv.data());
}

// Throws std::bad_cast if another command was asked for.
template <typename Options>
Options parse_as(const std::vector<std::string>& words) {
  return dynamic_cast<const CommandWith<Options>&>(*parse_words(words)).options;
}

inline std::string usage_error(const std::vector<std::string>& words) {
  return command_error(ExitCode::usage, [&] { parse_words(words); });
}

}  // namespace cp_pool::test
