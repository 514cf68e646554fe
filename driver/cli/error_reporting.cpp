#include "driver/cli/error_reporting.h"

#include <exception>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "cases/case_error.h"
#include "cases/error_reason.h"
#include "driver/core/exit_code.h"
#include "driver/report/output_file.h"
#include "driver/service/socket.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

int fail(ExitCode code, const std::string& message) {
  report_error(message);
  return to_int(code);
}

}  // namespace

void print_on_stdout(std::string_view text) {
  write_all(STDOUT_FILENO, text, "stdout");
}

void print_on_stderr(const std::string& line) {
  try {
    write_all(STDERR_FILENO, line + '\n', "stderr");
  } catch (const OutputError&) {  // stderr is lost, and only the exit code can still tell
    return;
  }
}

void print_on_stderr(std::string_view kind, std::string_view message) {
  print_on_stderr(fmt::format("cp-pool: {}{}{}", kind, kind.empty() ? "" : ": ", message));
}

void report_error(std::string_view message) {
  print_on_stderr("error", protocol::clean_text(message));
}

void report_warning(std::string_view message) {
  print_on_stderr("warning", protocol::clean_text(message));
}

void report_notice(std::string_view message) {
  print_on_stderr("", protocol::clean_text(message));
}

int report_errors_of(const std::function<int()>& command) {
  try {
    return command();
  } catch (const CommandError& e) {
    return fail(e.code(), e.what());
  } catch (const CaseError& e) {
    return fail(ExitCode::bad_input, e.what());
  } catch (const OutputError& e) {
    return fail(ExitCode::cannot_write, e.what());
  } catch (const service::SocketError& e) {
    return fail(ExitCode::infra, e.what());
  } catch (const std::system_error& e) {
    // The machine or one of its limits has refused a resource. Only the error's number counts, as Asio's errors have a
    // category of their own.
    const std::error_code code(e.code().value(), std::generic_category());
    for (const std::errc shortage : {std::errc::too_many_files_open, std::errc::too_many_files_open_in_system,
                                     std::errc::not_enough_memory, std::errc::resource_unavailable_try_again}) {
      if (code == shortage) return fail(ExitCode::infra, error_reason(code));
    }
    return fail(ExitCode::internal_error, fmt::format("internal error: {}", e.what()));
  } catch (const std::exception& e) {
    return fail(ExitCode::internal_error, fmt::format("internal error: {}", e.what()));
  }
}

}  // namespace cp_pool
