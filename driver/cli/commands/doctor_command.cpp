#include <algorithm>
#include <map>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_groups.h"
#include "driver/cli/commands/command.h"
#include "driver/cli/commands/doctor.h"
#include "driver/cli/device.h"
#include "driver/cli/execution.h"
#include "driver/cli/output_check.h"
#include "driver/cli/program_paths.h"
#include "driver/cli/select/selection.h"
#include "driver/cli/worker_command.h"
#include "driver/core/exit_code.h"
#include "driver/core/figures.h"
#include "driver/core/mapped.h"
#include "driver/os/gpu_links.h"
#include "driver/os/machine.h"
#include "driver/report/output_file.h"
#include "driver/report/text_format.h"
#include "worker/protocol/host_resources.h"

namespace cp_pool {
namespace {

using State = Finding::State;

constexpr const char* kDoctorFooter =
    "Examples:\n"
    "  cp-pool doctor                                 checks the worker beside this program\n"
    "  cp-pool doctor --worker 'python3 my_worker.py'\n"
    "  cp-pool doctor --adapter package.module:ring   checks a Python adapter and its interpreter\n";

Case smallest_case(int ranks) {
  Case c;
  c.cp_size = ranks;
  c.suite = "doctor";
  c.model = "smallest";
  c.dtype = DType::fp32;
  c.batch = 1;
  c.seqlen_q = c.seqlen_kv = 16;
  c.heads = c.kv_heads = 2;
  c.head_dim_qk = c.head_dim_v = 8;
  return c;
}

using Say = std::function<void(const Finding&)>;

std::string ready_text(const PoolReady& event) {
  std::string versions;
  for (const auto& [name, version] : event.versions.items()) {
    versions += fmt::format(", {} {}", name, version.is_string() ? version.get<std::string>() : version.dump());
  }
  return fmt::format("{} ready in {} on {}: {}{}", event.world_size, format_duration(event.spawn_to_ready_ms),
                     event.device, event.worker, versions);
}

// Returns advice about the resource limit that may have made the case fail; empty if there is none.
std::string limit_remedy(const CaseFinished& finished) {
  std::string said = finished.reason;
  for (const protocol::RankResult& rank : finished.ranks) said += '\n' + rank.error;
  for (const StderrTail& tail : finished.stderr_tails) said += '\n' + tail.text;
  const auto limit = limit_behind(said, resource_limits());
  if (!limit) return "";
  return fmt::format("the limit that failed: {}; raise it with: ulimit {} NUMBER", limit->text(), limit->shell_option);
}

// Runs a case, to show that cases can run. A user's own worker may skip this case.
void try_worker(const WorkerCommand& command, const std::string& device, RunConfig config, const Say& say) {
  const int ranks = ranks_to_try(device);
  config.worker_command = command.words;
  config.device = device;
  config.fork_server = command.fork_server;
  config.max_failed_starts = 1;
  config.grace = std::chrono::seconds(1);
  bool was_ready = false;
  CaseFinished finished;  // set, since every case gets an outcome
  Listener watcher([&](const Event& event) {
    if (const auto* ready = std::get_if<PoolReady>(&event)) {
      say({"ranks", ready_text(*ready)});
      was_ready = true;
    }
    if (const auto* end = std::get_if<CaseFinished>(&event)) finished = *end;
  });
  const RunResult result =
      run_cases({{.id = "doctor", .payload = smallest_case(ranks)}}, config, RunStarted{}, watcher);
  if (result.finished.interrupted) throw CommandError(ExitCode::interrupted, "interrupted");
  const bool passed = finished.outcome == CaseOutcome::pass;
  const bool skipped = !command.shipped && finished.outcome == CaseOutcome::skip;
  Finding finding{"ranks", finished.reason, passed ? State::good : skipped ? State::note : State::missing};
  if (finding.state == State::missing) finding.remedy = limit_remedy(finished);
  if (was_ready) {
    finding.name = "a case";
    finding.text = fmt::format("{} after {}{}{}", to_string(finished.outcome), format_duration(finished.duration_ms),
                               finished.reason.empty() ? "" : ": ", finished.reason);
    if (is_unverified_by_figures(finished)) finding.text += fmt::format(" ({})", kUnverifiedByFigures);
  }
  say(finding);
}

Finding find_worker(const std::string& binary) {
  if (::access(binary.c_str(), X_OK) == 0) return {"worker", binary};
  return {"worker", binary + " is not a program", State::missing, "build it with: tools/build release cp-pool-worker"};
}

// Checks the adapter's interpreter and its packages. If they are there, checks whether the adapter can be loaded.
std::vector<Finding> find_adapter(const WorkerCommand& command, const std::string& adapter) {
  const Interpreter found = interpreter_of(command);
  if (!found.trouble.empty()) {
    return {{"python", fmt::format("{}\n{}", found.text, found.trouble), State::missing,
             "name the interpreter of the environment that has torch and cp_pool with: --python PATH"}};
  }
  const std::string trouble = loading_error(command);
  if (trouble.empty()) return {{"python", found.text}, {"adapter", adapter}};
  return {{"python", found.text},
          {"adapter", fmt::format("{} cannot be loaded\n{}", adapter, trouble), State::missing}};
}

Finding find_cuda_part() {
  if (built_for_gpus()) return {"CUDA part", "built"};
  return {"CUDA part", "the worker was built without it (no nvcc of CUDA 13?); cases run on CPU ranks", State::missing,
          fmt::format("build it with: {}", kBuildForGpus)};
}

// Says whether ranks can connect to each other over 127.0.0.1.
Finding find_loopback() {
  const std::string trouble = loopback_trouble();
  if (trouble.empty()) return {"loopback", "ranks can meet at 127.0.0.1"};
  return {"loopback", trouble, State::missing, "bring it up with: ip link set lo up"};
}

// Lists the resource limits that are set for this process and its ranks.
Finding find_limits() {
  const std::vector<std::string> texts = mapped(resource_limits(), &ResourceLimit::text);
  return {"limits", texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, ", "))};
}

std::vector<Finding> find_matrices(const std::string& size) {
  std::vector<Finding> findings;
  for (const std::string& name : shipped_matrices()) {
    const Selection selection = select_cases({.matrices = {name}, .size = size});
    std::map<int, std::size_t> by_world_size;
    for (const SelectedCase& selected : selection.cases) ++by_world_size[world_size(selected.matrix_case.c)];
    const auto on = [](const auto& count) { return fmt::format("{} on {}", count.second, count.first); };
    findings.push_back({"matrix", fmt::format("{} ({}): {} cases, by ranks: {}", name, size, selection.cases.size(),
                                              fmt::join(mapped(by_world_size, on), ", "))});
  }
  if (!findings.empty()) return findings;
  return {{"matrix", "none is shipped with this program", State::missing,
           "give --matrix FILE, or install share/cp-pool/matrices beside bin"}};
}

// config: the deadlines of the ranks and of their case.
int examine(const WorkerChoice& choice, const RunConfig& config) {
  ExecutionOptions execution;
  execution.worker = choice;
  check_outputs({}, execution_inputs(execution));
  bool missing = false;
  // Prints each finding at once, since the next one may take long.
  const auto say = [&](const Finding& finding) {
    missing |= finding.state == State::missing;
    write_all(STDOUT_FILENO, finding_text(finding), "stdout");
  };
  say({"cp-pool", fmt::format("{} {}", CP_POOL_VERSION, program_path().string())});
  std::ranges::for_each(find_devices("/proc", protocol::usable_cores()), say);
  if (const auto gpus = gpus_of_list(""); gpus.size() > 1) {
    say({"GPU links", nvlink_text(gpu_links(gpus)), State::note});
  }
  say(find_limits());
  const Finding loopback = find_loopback();
  say(loopback);
  // Libraries and the loopback matter to the shipped worker. Nothing but the command is known of a user's own worker.
  const WorkerCommand command = worker_command(choice);
  bool startable = true;
  if (command.shipped) {
    const Finding worker = find_worker(command.words.front());
    say(worker);
    startable = worker.state == State::good;
    if (startable) say(find_libraries(command.words.front()));
    if (count_gpus("/dev", nullptr) > 0) say(find_cuda_part());
    if (startable && loopback.state == State::missing) {
      say({"ranks", "not tried without a loopback", State::note});
      startable = false;
    }
  }
  if (command.adapter()) {
    const std::vector<Finding> findings = find_adapter(command, choice.adapter);
    std::ranges::for_each(findings, say);
    startable = std::ranges::none_of(findings, [](const Finding& f) { return f.state == State::missing; });
  }
  const std::string device = choose_device("auto", command.shipped).device;  // as `cp-pool run` chooses it
  if (startable && command.shipped && device == "cuda") try_worker(command, "cpu", config, say);
  if (startable) try_worker(command, device, config, say);
  std::ranges::for_each(find_matrices("small"), say);
  const std::filesystem::path packages{CP_POOL_SOURCE_DIR "/tools/apt-packages.txt"};
  if (std::filesystem::exists(packages)) say(find_packages(packages));
  return to_int(missing ? ExitCode::infra : ExitCode::ok);
}

class DoctorCommand : public Command {
 public:
  explicit DoctorCommand(CLI::App& command) {
    config_.timeout = std::chrono::seconds{10};
    add_worker(command, worker_);
    add_duration(command, "--timeout", config_.timeout, std::chrono::milliseconds{1},
                 "Deadline for the ranks to start, and for a case on them");
  }

  void finish(const CLI::App& command) override {
    check_worker(command, worker_);
    // Ranks of an adapter import torch: they get as long to start as in a run.
    config_.start_timeout_grows = !worker_.adapter.empty() && !was_given(command, "--timeout");
    if (!config_.start_timeout_grows) config_.start_timeout = config_.timeout;
  }

  int run(const std::string& /*program*/) override { return examine(worker_, config_); }

 private:
  WorkerChoice worker_;
  RunConfig config_;
};

}  // namespace

Subcommand doctor_subcommand() {
  return subcommand<DoctorCommand>("doctor", "Say what is installed, what would run, and what is missing",
                                   kDoctorFooter);
}

}  // namespace cp_pool
