#include "worker/options.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <sstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace cp_pool {

namespace {

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

}  // namespace

Options parse_options(int argc, char** argv) {
  Options out;
  CLI::App app("Runs context-parallel attention cases as one rank of a worker group.", "cp-pool-worker");
  app.footer(footer());
  app.set_version_flag("--version", fmt::format("cp-pool-worker {}", CP_POOL_VERSION));
  std::string case_file;
  std::vector<std::string> faults;
  app.add_option("--case", case_file, "Run the case of this JSON file by itself, all its ranks in this process")
      ->type_name("FILE");
  app.add_option("--inject", faults, "Break a rank on purpose (see below); may be repeated")->type_name("FAULT");
  app.add_flag_callback(
      "--no-rehearsal", [&out] { out.rehearses = false; },
      "Start GPU ranks without running a small rehearsal case (for debuggers and sanitizers)");
  std::string cut;
  app.add_option(
         "--cut", cut,
         "Split the inputs over the ranks by this convention; all but dual_chunk are wrong, and the checks must fail "
         "(docs/adapters.md)")
      ->type_name("CONVENTION")
      ->check([&out](const std::string& text) -> std::string {
        const auto convention = verify::parse_convention(text);
        if (!convention) {
          return "'" + text +
                 "' is none of dual_chunk, dual_chunk_pack, contiguous, contiguous_pack, striped[:STRIPE], "
                 "paged[:PAGE], dual_chunk_ulysses:RING[:outer]";
        }
        out.cut = *convention;
        return {};
      });
  const char* source = "--inject";  // source of the fault that is being parsed
  try {
    app.parse(argc, argv);
    for (const std::string& fault : faults) out.faults.push_back(parse_fault(fault));
    source = kEnvInject;
    if (const char* const value = std::getenv(kEnvInject))
      std::ranges::move(parse_faults(value), std::back_inserter(out.faults));
  } catch (const CLI::Success& e) {
    std::ostringstream text;
    out.exit_code = app.exit(e, text, text);
    out.message = text.str();
  } catch (const CLI::ParseError& e) {
    out.exit_code = kExitUsage;
    out.message = fmt::format("cp-pool-worker: {} (see cp-pool-worker --help)\n", e.what());
  } catch (const FaultSyntaxError& e) {
    out.exit_code = kExitUsage;
    out.message = fmt::format("cp-pool-worker: {} {}\n", source, e.what());
  }
  if (!case_file.empty()) out.case_file = case_file;
  if (out.case_file && !out.faults.empty() && !out.exit_code) {
    out.exit_code = kExitUsage;
    out.message = fmt::format("cp-pool-worker: {} needs a group of ranks and cannot be used with --case\n",
                              faults.empty() ? kEnvInject : "--inject");
  }
  return out;
}

}  // namespace cp_pool
