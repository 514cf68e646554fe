// The errors that end a command, as its user sees them.
#pragma once

#include <functional>

namespace cp_pool {

// Gives what `command` gives. What it throws is a line on stderr and an exit code.
int report_errors_of(const std::function<int()>& command);

}  // namespace cp_pool
