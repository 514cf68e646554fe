#include <algorithm>
#include <cstdlib>
#include <unistd.h>

#include <fmt/format.h>

#include "driver/cli/commands/commands.h"
#include "driver/cli/device.h"
#include "driver/cli/exit_code.h"
#include "driver/cli/worker_command.h"
#include "driver/conformance/conformance.h"
#include "driver/reporters/output_file.h"
#include "driver/reporters/text_format.h"

namespace cp_pool {

namespace {

// Two ranks show all that there is between ranks; on GPUs one where there is one.
int ranks_on(const std::string& device) {
  constexpr int kRanks = 2;
  if (device != "cuda") return kRanks;
  return std::clamp(count_gpus("/dev", std::getenv("CUDA_VISIBLE_DEVICES")), 1, kRanks);
}

// Verdict, rule, what was seen, and what to do about it: one line.
std::string line_of(const conformance::Finding& finding) {
  std::string line = fmt::format("{:<9} {:<16} {}", to_string(finding.verdict), finding.rule, finding.text);
  if (!finding.hint.empty()) line += fmt::format(" (hint: {})", finding.hint);
  std::ranges::replace(line, '\n', ' ');
  return line + '\n';
}

std::string summary_of(const conformance::Tally& tally) {
  const int rules = tally.ok + tally.broken + tally.absent + tally.untested;
  std::string line =
      fmt::format("{}: {} ok, {} broken", count_of(static_cast<std::size_t>(rules), "rule"), tally.ok, tally.broken);
  if (tally.absent > 0) line += fmt::format(", {} absent", tally.absent);
  if (tally.untested > 0) line += fmt::format(", {} untested", tally.untested);
  return line + '\n';
}

}  // namespace

int conformance_command(const ConformanceOptions& options) {
  const WorkerCommand worker = worker_command(options.worker);
  const DeviceChoice device = choose_device(options.device, worker.shipped);
  const conformance::Config config{.command = worker.words,
                                   .device = device.device,
                                   .ranks = ranks_on(device.device),
                                   .timeout = options.timeout,
                                   .start_timeout = options.start_timeout};
  const auto show = [](const std::string& line) { write_all(STDOUT_FILENO, line, "stdout"); };
  try {
    conformance::Conformance rules(config, [&](const conformance::Finding& finding) { show(line_of(finding)); });
    const conformance::Tally tally = rules.run();
    show(summary_of(tally));
    if (!tally.started) return static_cast<int>(ExitCode::infra);
    return static_cast<int>(tally.broken > 0 ? ExitCode::failed : ExitCode::ok);
  } catch (const conformance::Interrupted&) {
    throw CommandError(ExitCode::interrupted, "interrupted");
  }
}

}  // namespace cp_pool
