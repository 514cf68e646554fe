#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <iterator>
#include <sstream>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cp_core/verify/conventions.h"
#include "worker/cp_core_runner.h"
#include "worker/startup_clock.h"
#include "worker/worker_main.h"

namespace cp_pool {
namespace {

// The stdout that the process was started with, close-on-exec; -1 if it had none. Only the protocol is written there:
// file descriptor 1 is a copy of stderr, so that stray prints cannot get in between.
int private_stdout = -1;

// Runs before any other code of the process. Sanitizers are not set up yet, so this function has no instrumentation and
// makes no call that a sanitizer intercepts.
__attribute__((no_sanitize("address", "undefined", "thread"))) void move_stdout(int, char**, char**) {
  private_stdout = static_cast<int>(syscall(SYS_fcntl, STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  syscall(SYS_dup3, STDERR_FILENO, STDOUT_FILENO, 0);
}

constexpr const char* kEnvInject = "CP_POOL_INJECT";

std::string footer() {
  return fmt::format(R"(
Without --case the worker is one rank of a group: it is started by cp-pool, or by a launcher (torchrun, mpirun, srun)
that sets its rank variables, and speaks the protocol of docs/protocol.md.

Faults: KIND@RANK:PHASE[:CASE], e.g. throw@1:inside:te-flash/* (docs/protocol.md says what each is)
  KIND   {}
         exit=N is an exit code, print=N and print_err=N a number of bytes, slow=MS milliseconds
         wrong=TENSOR, with phase inside, changes a result before it is verified; out if left out
         flaky=P or flaky=P,SEED throws with probability P (0 to 1), drawn anew for each attempt of a case
  PHASE  {}
  CASE   a glob over case IDs; every case if left out
  TENSOR {}
CP_POOL_INJECT in the environment holds such faults, too, separated by spaces; those of --inject come before them.)",
                     list_fault_kinds(), list_fault_phases(), list_wrong_tensors());
}

// Reports a usage error on stderr, because the driver shows the end of stderr.
int refuse(const std::string& what) {
  fmt::print(stderr, "cp-pool-worker: {}\n", what);
  return kExitUsage;
}

int run(int argc, char** argv, StartupClock& clock) {
  CLI::App app("Runs context-parallel attention cases as one rank of a worker group.", "cp-pool-worker");
  app.footer(footer());
  app.set_version_flag("--version", fmt::format("cp-pool-worker {}", CP_POOL_VERSION));
  Options options;
  app.add_option("--case", options.case_file, "Run the case of this JSON file by itself, all its ranks in this process")
      ->type_name("FILE");
  std::vector<std::string> faults;
  app.add_option("--inject", faults, "Break a rank on purpose (see below); may be repeated")->type_name("FAULT");
  app.add_flag_callback(
      "--no-rehearsal", [&options] { options.rehearses = false; },
      "Start GPU ranks without running a small rehearsal case (for debuggers and sanitizers)");
  std::string unused;
  verify::Convention cut;
  app.add_option(
         "--cut", unused,
         "Split the inputs over the ranks by this convention; all but dual_chunk are wrong, and the checks must fail "
         "(docs/adapters.md)")
      ->type_name("CONVENTION")
      ->check([&cut](const std::string& text) -> std::string {
        const auto convention = verify::parse_convention(text);
        if (!convention) {
          return "'" + text +
                 "' is none of dual_chunk, dual_chunk_pack, contiguous, contiguous_pack, striped[:STRIPE], "
                 "paged[:PAGE], dual_chunk_ulysses:RING[:outer]";
        }
        cut = *convention;
        return {};
      });
  const char* source = "--inject";  // source of the fault that is being parsed
  try {
    app.parse(argc, argv);
    for (const std::string& fault : faults) options.faults.push_back(parse_fault(fault));
    source = kEnvInject;
    if (const char* const value = std::getenv(kEnvInject))
      std::ranges::move(parse_faults(value), std::back_inserter(options.faults));
  } catch (const CLI::Success& e) {
    std::ostringstream text;
    const int exit_code = app.exit(e, text, text);
    dprintf(private_stdout, "%s", text.str().c_str());
    return exit_code;
  } catch (const CLI::ParseError& e) {
    return refuse(fmt::format("{} (see cp-pool-worker --help)", e.what()));
  } catch (const FaultSyntaxError& e) {
    return refuse(fmt::format("{} {}", source, e.what()));
  }
  if (!options.case_file.empty() && !options.faults.empty()) {
    return refuse(fmt::format("{} needs a group of ranks and cannot be used with --case",
                              faults.empty() ? kEnvInject : "--inject"));
  }
  static CpCoreRunner runner(cut);  // static: threads that prepare cases may still use it when the process ends
  return worker_main(options, runner, clock, private_stdout);
}

}  // namespace
}  // namespace cp_pool

// NOLINTNEXTLINE(misc-definitions-in-headers): not a header
__attribute__((section(".preinit_array"), used)) static void (*const kMoveStdout)(int, char**,
                                                                                  char**) = cp_pool::move_stdout;

int main(int argc, char** argv) {
  cp_pool::StartupClock clock;
  const int exit_code = cp_pool::run(argc, argv, clock);
  // Static destructors must not run, because threads may still be building plans. LibTorch's destructors would also
  // take a tenth of a second.
  std::fflush(nullptr);
  _exit(exit_code);
}
