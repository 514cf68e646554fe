#include "driver/cli/commands/reported.h"

#include <exception>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "cases/error_reason.h"
#include "driver/cli/execution.h"
#include "driver/core/exit_code.h"
#include "driver/report/output_file.h"

namespace cp_pool {

namespace {

int fail(ExitCode code, const std::string& message) {
  report_error(message);
  return to_int(code);
}

}  // namespace

int report_errors_of(const std::function<int()>& command) {
  try {
    return command();
  } catch (const CommandError& e) {
    return fail(e.code(), e.what());
  } catch (const OutputError& e) {
    return fail(ExitCode::cannot_write, e.what());
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
