// Prints the answers of commands on stdout, and reports errors, warnings and notices to the user on stderr.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace cp_pool {

// Throws OutputError.
void print_on_stdout(std::string_view text);

// Print "cp-pool: error: MESSAGE", "cp-pool: warning: MESSAGE" and "cp-pool: MESSAGE". `message` ends without a
// newline; it may quote the command line and input files, so it is cleaned.
void report_error(std::string_view message);
void report_warning(std::string_view message);
void report_notice(std::string_view message);

// Print a line, and "cp-pool: KIND: MESSAGE", of clean text. That stderr is lost is no error.
void print_on_stderr(const std::string& line);
void print_on_stderr(std::string_view kind, std::string_view message);

// Returns what `command` returns. If it throws, reports the error and returns its exit code.
int report_errors_of(const std::function<int()>& command);

}  // namespace cp_pool
