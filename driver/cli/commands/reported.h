// Reports the errors that end a command to the user.
#pragma once

#include <functional>

namespace cp_pool {

// Returns what `command` returns. If it throws, prints the error as a line on stderr and returns its exit code.
int report_errors_of(const std::function<int()>& command);

}  // namespace cp_pool
