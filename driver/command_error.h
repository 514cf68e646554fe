// The one kind of error that ends the program early.
#pragma once

#include <stdexcept>
#include <string>

#include "driver/exit_code.h"

namespace cp_pool {

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
