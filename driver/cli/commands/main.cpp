#include <csignal>
#include <exception>
#include <fcntl.h>
#include <string>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "cases/error_reason.h"
#include "driver/cli/command_error.h"
#include "driver/cli/commands/command_line.h"
#include "driver/cli/execution.h"
#include "driver/reporters/output_file.h"

namespace {

int fail(cp_pool::ExitCode code, const std::string& message) {
  cp_pool::report_error(message);
  return to_int(code);
}

// If a standard descriptor is closed, the next file that is opened would get its number: a report, or a pipe of the
// event loop. So /dev/null is opened for reading there: reading from it ends at once, and writing to it fails.
void fill_closed_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) == -1) (void)open("/dev/null", O_RDONLY);  // takes the lowest that is free
  }
}

}  // namespace

int main(int argc, char** argv) {
  fill_closed_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is a write error, which is reported
  try {
    return cp_pool::parse_command_line(argc, argv)->run(argv[0]);
  } catch (const cp_pool::CommandError& e) {
    return fail(e.code(), e.what());
  } catch (const cp_pool::OutputError& e) {
    return fail(cp_pool::ExitCode::cannot_write, e.what());
  } catch (const std::system_error& e) {
    // A resource that this machine, or one of its limits, refuses. Asio's errors have a category of their own.
    const std::error_code code(e.code().value(), std::generic_category());
    for (const std::errc shortage : {std::errc::too_many_files_open, std::errc::too_many_files_open_in_system,
                                     std::errc::not_enough_memory, std::errc::resource_unavailable_try_again}) {
      if (code == shortage) return fail(cp_pool::ExitCode::infra, cp_pool::error_reason(code));
    }
    return fail(cp_pool::ExitCode::internal_error, fmt::format("internal error: {}", e.what()));
  } catch (const std::exception& e) {
    return fail(cp_pool::ExitCode::internal_error, fmt::format("internal error: {}", e.what()));
  }
}
