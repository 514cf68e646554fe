#include <fmt/format.h>

#include "driver/cli/commands/command.h"
#include "driver/cli/device.h"
#include "driver/cli/error_reporting.h"
#include "driver/cli/execution_options.h"
#include "driver/cli/worker_command.h"
#include "driver/conformance/conformance.h"
#include "driver/core/exit_code.h"
#include "driver/core/run.h"
#include "driver/report/text_format.h"

namespace cp_pool {
namespace {

std::string conformance_footer() {
  return fmt::format(
      "Prints a line for each rule: the verdict, the rule, what was observed, and a hint unless the verdict is ok.\n"
      "  ok        the worker follows the rule\n"
      "  BROKEN    the worker breaks a rule that the protocol requires\n"
      "  absent    the worker leaves out an optional feature\n"
      "  untested  the worker offers no way to test the rule; faults need a worker that obeys CP_POOL_INJECT\n"
      "The exit code is {} if no rule is broken, {} if one is, {} if the worker never became ready.\n\n"
      "Examples:\n"
      "  cp-pool conformance --worker docs/examples/minimal_worker.py\n"
      "  cp-pool conformance --worker 'python3 my_worker.py' --timeout 1m | grep -v '^ok'\n",
      to_int(ExitCode::ok), to_int(ExitCode::failed), to_int(ExitCode::infra));
}

// Formats a finding as one line: verdict, rule, what was seen and a hint.
std::string line_of(const conformance::Finding& finding) {
  std::string line = fmt::format("{:<9} {:<16} {}", name_of(finding.verdict), finding.rule, finding.text);
  if (!finding.hint.empty()) line += fmt::format(" (hint: {})", finding.hint);
  return on_one_line(line) + '\n';
}

std::string summary_of(conformance::Tally tally) {
  using enum Compliance;
  auto& of = tally.rules;
  const int rules = of[ok] + of[broken] + of[absent] + of[untested];
  std::string line = fmt::format("{}: {} ok, {} broken", count_of(rules, "rule"), of[ok], of[broken]);
  if (of[absent] > 0) line += fmt::format(", {} absent", of[absent]);
  if (of[untested] > 0) line += fmt::format(", {} untested", of[untested]);
  return line + '\n';
}

class ConformanceCommand : public Command {
 public:
  explicit ConformanceCommand(CLI::App& command) {
    constexpr std::chrono::milliseconds kShortest{1};
    config_.device = "auto";
    config_.timeout = std::chrono::seconds{20};
    add_worker(command, worker_);
    add_device(command, config_.device);
    add_duration(command, "--timeout", config_.timeout, kShortest, "Deadline for the answer to a case");
    add_duration(command, "--start-timeout", config_.start_timeout, kShortest,
                 "Deadline for the worker to become ready");
  }

  void finish(const CLI::App& command) override {
    check_worker(command, worker_);
    config_.start_timeout_grows = !worker_.adapter.empty() && !was_given(command, "--start-timeout");
  }

  int run(const std::string& /*program*/) override {
    const WorkerCommand worker = worker_command(worker_);
    config_.worker_command = worker.words;
    config_.device = choose_device(config_.device, worker.shipped).device;
    const auto tell = [](const conformance::Finding& finding) { print_on_stdout(line_of(finding)); };
    try {
      const conformance::Tally tally = conformance::Conformance(config_, ranks_to_try(config_.device), tell).run();
      print_on_stdout(summary_of(tally));
      if (!tally.started) return to_int(ExitCode::infra);
      return to_int(tally.rules.contains(Compliance::broken) ? ExitCode::failed : ExitCode::ok);
    } catch (const conformance::Interrupted&) {
      throw CommandError(ExitCode::interrupted, "interrupted");
    }
  }

 private:
  WorkerChoice worker_;
  RunConfig config_;
};

}  // namespace

Subcommand conformance_subcommand() {
  return subcommand<ConformanceCommand>("conformance", "Test a worker against the rules of the protocol",
                                        conformance_footer());
}

}  // namespace cp_pool
