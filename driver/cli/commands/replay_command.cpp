#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "driver/cli/commands/command.h"
#include "driver/cli/device.h"
#include "driver/cli/error_reporting.h"
#include "driver/cli/execution.h"
#include "driver/cli/output_check.h"
#include "driver/cli/worker_command.h"
#include "driver/core/exit_code.h"
#include "driver/core/rank_environment.h"
#include "driver/triage/capsule.h"

namespace cp_pool {
namespace {

std::string replay_footer() {
  return fmt::format(
      "Sends the cases of the capsule to one fresh pool, in the order in which they were sent in the run.\n"
      "Exit code {}: the case passes now; {}: it still fails; {}: it could not be judged.\n\n"
      "Examples:\n"
      "  cp-pool replay capsules/quick__causal__p2p__cp2__bshd__fp32\n"
      "  cp-pool replay capsule.json --adapter package.module:ring --device cpu\n",
      to_int(ExitCode::ok), to_int(ExitCode::failed), to_int(ExitCode::infra));
}

// Returns the capsule's working directory and environment variables, for a worker on this machine. Variables that only
// make sense on the machine of the run keep their local values; a folder that does not exist here is replaced by the
// current one.
ProcessEnvironment process_environment_of(const Capsule& capsule) {
  ProcessEnvironment out;
  std::error_code missing;
  out.folder = capsule.folder;
  if (!std::filesystem::is_directory(out.folder, missing)) out.folder = std::filesystem::current_path();
  std::vector<std::string> entries = capsule.environment;
  std::erase_if(entries, [](std::string_view entry) {
    const std::size_t equals = entry.find('=');
    return equals == std::string_view::npos || is_of_this_machine(entry.substr(0, equals));
  });
  out.environment = with_entries(own_environment(), entries);
  return out;
}

void take_over(const Capsule& capsule, RunConfig& config) {
  config.timeout = capsule.timeout;
  config.start_timeout = capsule.start_timeout;
  config.share_gpus = capsule.share_gpus;
  config.bound_factor = capsule.bound_factor;
  config.reference_cache = capsule.reference_cache;
  config.perf = capsule.perf;
  config.slots = 1;
  config.process = process_environment_of(capsule);
}

std::vector<Item> cases_of(const Capsule& capsule) {
  std::vector<Item> out;
  for (const CapsuleCase& kept : capsule.cases) {
    out.push_back({{.id = kept.id, .payload = kept.payload, .rerun = capsule.rerun}});
    out.back().timeout = kept.timeout;
  }
  return out;
}

// The verdict as a sentence, and the exit code.
std::pair<std::string, ExitCode> answer(const Capsule& capsule, const std::optional<CaseFinished>& end) {
  if (!end || !is_of_the_case(end->outcome)) {
    return {fmt::format("not judged: {} {}", end ? to_string(end->outcome) : "not-run", end ? end->reason : ""),
            ExitCode::infra};
  }
  if (end->outcome == CaseOutcome::pass) {
    return {fmt::format("it passes now; it was {}", to_string(capsule.outcome)), ExitCode::ok};
  }
  if (end->outcome == capsule.outcome) {
    return {fmt::format("it still fails: {}", to_string(end->outcome)), ExitCode::failed};
  }
  return {fmt::format("it fails, in another way: {}; it was {}", to_string(end->outcome), to_string(capsule.outcome)),
          ExitCode::failed};
}

class ReplayCommand : public Command {
 public:
  explicit ReplayCommand(CLI::App& command) {
    add_positional(command, "CAPSULE", folder_, Needed::yes,
                   "The folder of a failure in --capsules DIR, or its capsule.json");
    execution_.config.device = "auto";
    add_device(command, execution_.config.device);
    add_worker(command, execution_.worker);
    add_views(command, execution_);
    add_kept_files(command, execution_);
  }

  void finish(const CLI::App& command) override {
    check_worker(command, execution_.worker);
    own_worker_ = was_given(command, "--worker") || was_given(command, "--adapter");
    own_device_ = was_given(command, "--device");
    if (!own_device_) return;
    DeviceChoice choice = choose_device(execution_.config.device, false);
    execution_.config.device = std::move(choice.device);
    execution_.warning = std::move(choice.warning);
  }

  int run(const std::string& /*program*/) override {
    const Capsule capsule = read_capsule(folder_);
    check_outputs(outputs_of(execution_), {}, execution_.force);
    take_over(capsule, execution_.config);
    if (!own_device_) execution_.config.device = capsule.device;
    const std::vector<Item> cases = cases_of(capsule);
    const RunStarted header{.title = "the capsule of " + capsule.id,
                            .device = execution_.config.device,
                            .cases = cases.size(),
                            .version = CP_POOL_VERSION};
    Execution execution{execution_, Execution::Show::terminal};
    std::optional<CaseFinished> last;
    std::vector<protocol::ReadyEvent> workers;
    execution.listen([&](const Event& event) {
      const auto* const finished = std::get_if<CaseFinished>(&event);
      if (finished != nullptr && finished->index == cases.size() - 1) last = *finished;
      if (const auto* ready = std::get_if<PoolReady>(&event)) workers.push_back(*ready);
    });
    const int code = execution([&](const RunConfig& shared, EventSink& sink) {
      RunConfig config = shared;
      if (!own_worker_) static_cast<RankProgram&>(config) = capsule;
      RunResult result = run_cases(cases, config, header, sink);
      if (!workers.empty() && workers.back().versions != capsule.versions) {
        report_notice(fmt::format("the worker's versions are {}; they were {}", workers.back().versions.dump(),
                                  capsule.versions.dump()));
      }
      if (workers.size() > 1) {
        report_warning("the pool was replaced during the replay: not all cases of the capsule ran on the same pool");
      }
      return result;
    });
    const auto [text, verdict] = answer(capsule, last);
    execution.print_answer(fmt::format("{}: {}", capsule.id, text));
    // The cases that precede the failing one may end in any way. Other exit codes are errors of the program and stay.
    const bool of_cases =
        code == to_int(ExitCode::ok) || code == to_int(ExitCode::failed) || code == to_int(ExitCode::infra);
    return of_cases ? to_int(verdict) : code;
  }

 private:
  std::string folder_;
  ExecutionOptions execution_;  // the worker, the device and the views; the rest comes from the capsule
  bool own_worker_ = false;
  bool own_device_ = false;
};

}  // namespace

Subcommand replay_subcommand() {
  return subcommand<ReplayCommand>("replay", "Run the failure of a capsule again", replay_footer());
}

}  // namespace cp_pool
