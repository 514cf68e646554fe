#include <csignal>
#include <fcntl.h>
#include <unistd.h>

#include "driver/cli/commands/command.h"
#include "driver/cli/error_reporting.h"

namespace {

// If a standard descriptor is closed, the next file that is opened would get its number: a report, or a pipe of the
// event loop. So /dev/null is opened there, for reading only: a read ends at once, and a write fails.
void fill_closed_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) == -1) (void)open("/dev/null", O_RDONLY);  // open takes the lowest free number
  }
}

}  // namespace

int main(int argc, char** argv) {
  fill_closed_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its size limit is then a write error, which is reported
  return cp_pool::report_errors_of([&] { return cp_pool::parse_command_line({argv + 1, argv + argc})->run(argv[0]); });
}
