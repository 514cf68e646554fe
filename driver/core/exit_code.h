// The exit codes of cp-pool. Those of a worker are in worker/protocol/messages.h.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

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

// Returns a table of all exit codes with their meanings, as it stands at the end of every --help and in the man page.
// docs/command_line.md has the same.
std::string exit_code_help();

// Returns the one of the two that comes first. A `code` that is no exit code counts as an internal error.
int first_that_applies(int code, ExitCode other);

// Ends the program with the exit code `code()`. what() is one line for stderr; a filter error adds the expression and a
// line with a caret.
class CommandError : public std::runtime_error {
 public:
  CommandError(ExitCode code, const std::string& message) : std::runtime_error{message}, code_{code} {}
  template <typename... T>
  CommandError(ExitCode code, fmt::format_string<T...> message, T&&... arguments)
      : CommandError{code, fmt::format(message, std::forward<T>(arguments)...)} {}
  [[nodiscard]] ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

}  // namespace cp_pool
