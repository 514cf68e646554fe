// The exit codes of cp-pool. Those of a worker are in worker/protocol/messages.h.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace cp_pool {

// In order of precedence: the process ends with the first that applies.
enum class ExitCode {
  interrupted = 130,
  internal_error = 70,
  failed = 100,
  infra = 96,
  bad_input = 94,
  cannot_write = 73,
  usage = 2,
  nothing_selected = 4,
  ok = 0,
};

constexpr int to_int(ExitCode code) {
  return static_cast<int>(code);
}

struct ExitCodeMeaning {
  ExitCode code;
  std::string_view meaning;
};

// All exit codes, in order of precedence. --help, the man page and docs/command_line.md show this table.
std::span<const ExitCodeMeaning> exit_codes();
// The table as lines of text, as it stands at the end of every --help.
std::string exit_code_help();

// Returns the one of the two that comes first in the table. A `code` that the table does not hold counts as an internal
// error.
int first_that_applies(int code, ExitCode other);

// Ends the program with the exit code `code()`. what() is one line for stderr; a filter error adds the expression and a
// line with a caret.
class CommandError : public std::runtime_error {
 public:
  CommandError(ExitCode code, const std::string& message) : std::runtime_error{message}, code_{code} {}
  [[nodiscard]] ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

}  // namespace cp_pool
