#include "driver/cli/execution_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/did_you_mean.h"
#include "cases/file_reader.h"
#include "driver/cli/device.h"
#include "driver/cli/shell_words.h"
#include "driver/core/exit_code.h"
#include "driver/ranks/launcher.h"
#include "driver/report/terminal_sink.h"
#include "worker/protocol/environment.h"

namespace cp_pool {
namespace {

using std::chrono::milliseconds;

void add_perf(CLI::App& command, ExecutionOptions& options) {
  add_choice(command, "--mode", "MODE", {"verify", "perf"}, options.mode,
             "verify: judge the results; perf: then also time the step, one pool at a time");
  add_count(command, "--warmup", options.perf.warmup, "Untimed steps before the steps that --mode perf times");
  add_count(command, "--iterations", options.perf.iterations, "Number of steps that --mode perf times");
  add_flag(command, "--graph", options.perf.graph, "Time replays of a CUDA graph of the step");
  add_path(command, "--trace", options.trace_dir, "DIR", PathUse::worker_folder,
           "Let each rank write a Chrome trace of one step, and on GPUs a table of its kernels");
  add_path(
      command, "--baseline", options.baseline, "FILE", PathUse::earlier_run,
      "Compare the times with those of an earlier --events FILE; cp-pool run also takes a recorded run, such as last");
  add_ratio(command, "--max-ratio", options.config.max_ratio,
            "A case that takes more than R times as long as in the --baseline is a failure");
}

// A path starts in the folder; a name without a slash is looked up in PATH.
std::string program_from_folder(const std::string& text, const std::filesystem::path& folder) {
  return text.find('/') == std::string::npos ? text : path_from_folder(text, folder);
}

std::string worker_from_folder(const std::string& text, const std::filesystem::path& folder) {
  auto words = split_words(text);
  if (!words || words->empty()) return text;
  words->front() = program_from_folder(words->front(), folder);
  return shell_line(*words);
}

std::string adapter_from_folder(const std::string& text, const std::filesystem::path& folder) {
  return text.find(".py") == std::string::npos ? text : path_from_folder(text, folder);
}

// Lets the option `name` set the option `count` to 1. Throws CommandError (usage) if `count` is given as any other
// number.
void apply_shorthand(const CLI::App& command, const std::string& name, const std::string& count, int& target) {
  const bool given = was_given(command, name);
  const bool count_given = was_given(command, count);
  if (given && count_given && target != 1) {
    refuse(command, fmt::format("{} is {} 1: it contradicts {} {}", name, count, count, target));
  }
  if (given || (is_configured(command, name) && !count_given)) target = 1;
}

// Returns why `text` is not SEED[:MAX_MS], for the user; empty if it is.
std::string wrong_with_delays(const std::string& text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const auto longest = colon < text.size() ? parse_number<double>(text.substr(colon + 1)) : std::optional(1.0);
  const bool good = parse_number<std::int64_t>(text.substr(0, colon)) && longest && *longest > 0 && *longest <= 1000;
  return good ? "" : fmt::format("'{}' is not SEED[:MAX_MS], two numbers of which the second is at most 1000", text);
}

// Chooses the worker's launcher and device. Throws CommandError (usage).
void apply_worker(const CLI::App& command, ExecutionOptions& options) {
  RunConfig& config = options.config;
  check_worker(command, options.worker);
  const bool adapter = !options.worker.adapter.empty();
  const bool must_fork = was_given(command, "--fork") && options.fork == "on";
  if (must_fork && !adapter) refuse(command, "--fork on needs --adapter");
  if (was_given(command, "--delays") && !adapter) refuse(command, "--delays needs --adapter");
  config.expect_judged = adapter;
  config.start_timeout_grows = adapter && !is_set(command, "--start-timeout");
  if (config.bound_factor == 1) config.bound_factor.reset();
  config.launcher = parse_launcher(options.launcher);
  if (config.launcher.kind != LauncherKind::local) {
    if (must_fork) refuse(command, "--fork on needs --launcher local");
    options.fork = "off";
  }
  DeviceChoice choice = choose_device(config.device, worker_command(options.worker).shipped);
  config.device = std::move(choice.device);
  options.warning = std::move(choice.warning);
}

// To be called after apply_worker. Throws CommandError (usage).
void apply_perf(const CLI::App& command, ExecutionOptions& options) {
  if (options.mode != "perf") {
    for (const char* name : {"--warmup", "--iterations", "--graph", "--trace", "--baseline", "--max-ratio"}) {
      if (was_given(command, name)) refuse(command, fmt::format("{} needs --mode perf", name));
    }
    options.baseline.reset();
    options.config.max_ratio.reset();
    return;
  }
  if (options.perf.iterations < 1) refuse(command, "--iterations: at least 1");
  if (options.perf.graph && options.config.device != "cuda") {
    throw CommandError(ExitCode::usage, "--graph needs ranks on GPUs (--device cuda)");
  }
  if (options.config.max_ratio && !options.baseline) refuse(command, "--max-ratio needs --baseline");
  if (options.trace_dir) options.perf.trace_dir = options.trace_dir->string();
  options.config.perf = options.perf;
  if (was_given(command, "--slots"))
    refuse(command, "--mode perf lets one pool work at a time: it contradicts --slots");
  // Pools that work side by side would slow each other down.
  options.config.slots = 1;
}

// To be called after apply_perf.
void apply_slots(const CLI::App& command, ExecutionOptions& options) {
  const bool on_gpus = options.config.device == "cuda";
  const bool times = options.config.perf.has_value();
  options.config.share_gpus = options.share_gpus == "on" || (options.share_gpus == "auto" && !times);
  options.config.spare = !times && (options.spare == "on" || (options.spare == "auto" && !on_gpus));
  if (on_gpus && was_given(command, "--slots")) refuse(command, "--slots needs --device cpu; --gpus says which GPUs");
  if (!on_gpus && was_given(command, "--gpus")) refuse(command, "--gpus needs --device cuda");
  if (!on_gpus) return;
  if (!options.config.perf) options.config.slots = 0;
  const std::vector<std::string> gpus = chosen_gpus(options.gpus);
  if (!options.gpus.empty() || gpus.size() > 1) options.config.gpus = gpus;
}

// Throws CommandError (bad_input).
std::vector<HostShare> hosts_of(const RunConfig& config) {
  constexpr const char* kHostfile = "OMPI_MCA_orte_default_hostfile";
  try {
    const auto hostfile = protocol::process_variable(kHostfile);
    if (config.launcher.kind != LauncherKind::mpirun || !hostfile) {
      return slurm_allocation(protocol::process_variable, config.device);
    }
    return hosts_of_hostfile(FileReader(*hostfile).read_all());
  } catch (const std::invalid_argument& error) {
    throw CommandError(ExitCode::bad_input, "{}: {}", kHostfile, error.what());
  } catch (const std::runtime_error& error) {  // AllocationError; a file that cannot be read
    throw CommandError(ExitCode::bad_input, error.what());
  }
}

// To be called after apply_slots. The slots become those of all hosts of the allocation.
void apply_allocation(const CLI::App& command, ExecutionOptions& options) {
  RunConfig& config = options.config;
  if (config.launcher.kind == LauncherKind::local || config.launcher.kind == LauncherKind::torchrun) return;
  config.hosts = hosts_of(config);
  if (config.hosts.empty()) return;
  if (was_given(command, "--gpus"))
    refuse(command, "--gpus names GPUs of this host; the allocation has hosts of its own");
  config.gpus.clear();
  if (was_given(command, "--slots") || config.perf) return;
  config.slots = 0;
  for (const HostShare& host : config.hosts) config.slots += host.ranks;
}

std::string wrong_with_outcomes(const std::string& list) {
  std::vector<std::string> names;
  for (const auto& [outcome, name] : kNames<CaseOutcome>) {
    if (is_failure(outcome) || outcome == CaseOutcome::infra) names.emplace_back(name);
  }
  for (const std::string& part : split(list, ',')) {
    if (std::ranges::count(names, part) > 0) continue;
    return fmt::format("'{}' is none of {}{}", part, fmt::join(names, ", "), did_you_mean(part, names));
  }
  return "";
}

// Returns the options that change the outcome of a case, as arguments of its rerun.
std::vector<std::string> rerun_arguments(const CLI::App& command, const ExecutionOptions& options) {
  std::vector<std::string> words;
  const auto add = [&](const std::string& name, const std::string& value) {
    if (is_set(command, name)) words.insert(words.end(), {name, value});
  };
  add("--device", options.config.device);
  add("--share-gpus", options.share_gpus);
  add("--worker", options.worker.command);
  add("--adapter", options.worker.adapter);
  add("--python", options.worker.python);
  add("--launcher", options.launcher);
  add("--fork", options.fork);
  add("--delays", options.worker.delays);
  add("--bound-factor", fmt::format("{}", options.config.bound_factor.value_or(1)));
  add("--timeout", duration_text(options.config.timeout));
  add("--start-timeout", duration_text(options.config.start_timeout));
  if (options.config.perf) {
    words.insert(words.end(), {"--mode", "perf"});
    add("--warmup", std::to_string(options.config.perf->warmup));
    add("--iterations", std::to_string(options.config.perf->iterations));
    if (options.config.perf->graph) words.emplace_back("--graph");
    if (options.config.max_ratio) {
      add("--baseline", options.baseline->string());
      add("--max-ratio", fmt::format("{}", *options.config.max_ratio));
    }
  }
  return words;
}

}  // namespace

std::string rerun_line(std::vector<std::string> words, const ExecutionOptions& options) {
  words.insert(words.end(), options.rerun_arguments.begin(), options.rerun_arguments.end());
  return shell_line(words);
}

std::optional<std::string> rerun_of_failed(std::vector<std::string> words, const ExecutionOptions& options) {
  std::error_code ignored;
  const auto& events = options.events;
  if (!events || (std::filesystem::exists(*events, ignored) && !std::filesystem::is_regular_file(*events, ignored))) {
    return std::nullopt;
  }
  words.insert(words.end(), {"--rerun-failed", events->string()});
  return rerun_line(std::move(words), options);
}

void add_adapter(CLI::App& command, WorkerChoice& worker) {
  add_text(command, "--adapter", "ADAPTER", worker.adapter,
           "Judge a Python function instead of a worker: FILE.py[:NAME] or package.module:NAME",
           {.check = wrong_with_adapter, .from_folder = adapter_from_folder});
  const auto wrong_with_python = [](const std::string& text) { return text.empty() ? "the path is empty" : ""; };
  add_text(
      command, "--python", "PATH", worker.python,
      "Python interpreter for the --adapter; it needs the packages cp_pool and torch",
      {.check = wrong_with_python, .default_text = "that of this installation", .from_folder = program_from_folder});
}

void check_worker(const CLI::App& command, const WorkerChoice& worker) {
  if (was_given(command, "--python") && worker.adapter.empty()) refuse(command, "--python needs --adapter");
}

void add_worker(CLI::App& command, WorkerChoice& worker) {
  const auto wrong_with_words = [](const std::string& text) -> std::string {
    const auto words = split_words(text);
    return words && !words->empty() ? "" : fmt::format("'{}' is not a command line", text);
  };
  add_text(command, "--worker", "CMD", worker.command, "Worker command line, split into words as a shell does",
           {.check = wrong_with_words,
            .default_text = "cp-pool-worker beside this program",
            .from_folder = worker_from_folder});
  add_adapter(command, worker);
  exclude(command, "--adapter", "--worker");
}

void add_device(CLI::App& command, std::string& device) {
  add_choice(command, "--device", "DEVICE", {"auto", "cpu", "cuda"}, device,
             "Device of the ranks: auto is cuda if there is a GPU, else cpu");
}

void add_gpus(CLI::App& command, std::vector<int>& list, const std::string& more) {
  const auto wrong_with_list = [](const std::string& text) {
    return parse_gpu_list(text) ? "" : fmt::format("'{}' is no list of GPUs, each once; write 0-3,6", text);
  };
  add_text(command, "--gpus", "LIST", [&list](const std::string& text) { list = *parse_gpu_list(text); },
           "Which of the visible GPUs to use: 0-3,6" + more, {.check = wrong_with_list, .default_text = "all"});
}

void add_views(CLI::App& command, ExecutionOptions& options) {
  add_flag(command, "--no-skip", options.config.no_skip,
           fmt::format("Exit with code {} if a case is skipped", to_int(ExitCode::infra)));
  add_path(command, "--junit", options.junit, "FILE", PathUse::output, "Write a JUnit XML report, at the end");
  add_path(command, "--html", options.html, "FILE", PathUse::output, "Write an HTML report, at the end");
  add_path(command, "--summary", options.summary, "FILE", PathUse::output,
           "Write a Markdown summary for the page of a CI job, at the end");
  add_path(command, "--trace-run", options.trace_run, "FILE", PathUse::output,
           "Write a timeline of pools, cases and phases for ui.perfetto.dev, at the end");
  add_choice(command, "--annotate", "WHERE", {"none", "github"}, options.annotate,
             "Mark failures for a CI: github reads its commands from stderr");
  add_flag(command, "--force", options.force, "Let outputs replace files that cp-pool did not write");
  add_flag(command, "--timings", options.timings,
           "Show a table of times by phase and world size, and the slowest cases");
  add_flag(command, "-v,--verbose", options.verbose,
           "Print a line for each case, and every check with its error and bound");
  add_flag(command, "-q,--no-progress", options.progress, "Print only failures and the summary", false);
  exclude(command, "--verbose", "--no-progress");
  add_choice(command, "--status-level", "LEVEL", all_names<StatusLevel>(), options.status_level,
             "Which finished cases are printed: auto prints failures on a terminal, all cases elsewhere; skip prints "
             "failures, and cases that were skipped, cancelled or expected to fail");
  add_choice(command, "--show-output", "WHEN", all_names<ShowOutput>(), options.show_output,
             "Which cases show their ranks' last lines of stderr: always is all but those that passed or were skipped");
}

void add_kept_files(CLI::App& command, ExecutionOptions& options) {
  add_path(command, "--events", options.events, "FILE", PathUse::output,
           "Write every event as a line of JSON, as it happens");
  add_path(command, "--run-dir", options.config.run_dir, "DIR", PathUse::folder,
           "Keep the full stdout and stderr of every pool");
  add_path(command, "--dump", options.config.dump_dir, "DIR", PathUse::worker_folder,
           "Let the worker write the tensors of each case");
}

void add_execution(CLI::App& command, ExecutionOptions& options) {
  RunConfig& config = options.config;
  constexpr milliseconds kShortest{1};
  config.device = "auto";
  add_device(command, config.device);
  add_choice(command, "--share-gpus", "WHEN", {"auto", "on", "off"}, options.share_gpus,
             "Whether ranks share GPUs if there are fewer GPUs than ranks: auto does, except with --mode perf");
  add_count(command, "--slots", config.slots,
            "CPU ranks that may work at once, in all pools together; 0 = as many as there are cores");
  add_gpus(command, options.gpus, ". Each pool gets its own GPUs");
  add_choice(command, "--spare", "WHEN", {"auto", "on", "off"}, options.spare,
             "If slots are free, keep a spare pool ready that takes over after a crash: auto does on CPU");
  add_worker(command, options.worker);
  add_text(command, "--launcher", "LAUNCHER", options.launcher,
           "Launcher of the ranks: local, torchrun, mpirun, srun, or a command line with {worker} and optionally "
           "{world_size}, {nodes}, {ranks_per_node}, {hosts}, {rendezvous} (docs/cluster.md)",
           {.check = wrong_with_launcher, .default_text = options.launcher});
  add_choice(command, "--fork", "WHEN", {"auto", "on", "off"}, options.fork,
             "Whether ranks are forked from one process that has imported torch: auto does this with --adapter");
  add_text(command, "--delays", "SEED[:MAX_MS]", options.worker.delays,
           "Delay the adapter's work at random places, by at most MAX_MS each (default 2): a result that "
           "depends on timing then becomes wrong (docs/adapters.md)",
           {.check = wrong_with_delays});
  add_ratio(command, "--bound-factor", config.bound_factor,
            "Multiply every bound by this; reports show the factor. The worker has to support it");
  add_duration(command, "--timeout", config.timeout, kShortest, "Deadline of a case");
  add_duration(command, "--start-timeout", config.start_timeout, kShortest,
               "Deadline for a pool to become ready; with --adapter the default grows with the ranks per core");
  add_duration(command, "--grace", config.grace, milliseconds{0},
               "Time from a shutdown request to SIGTERM, and from SIGTERM to SIGKILL");
  add_duration(command, "--global-timeout", config.global_timeout, milliseconds{0},
               "Deadline of the whole run; 0 = none");
  add_duration(command, "--slow-after", config.slow_after, milliseconds{0},
               "Name a case on stderr if it runs longer than this, and again after twice this time; 0 = never");
  add_count(command, "--max-consecutive-timeouts", config.max_consecutive_timeouts,
            "After this many consecutive timeouts a pool is not started again; 0 = no limit");
  add_count(command, "--pool-max-cases", config.pool_max_cases, "Replace a pool after this many cases; 0 = never");
  add_flag(command, "--isolate", "Start a fresh pool for each case, as --pool-max-cases 1 does");
  add_count(command, "--max-fail", config.max_failures,
            "End the run after this many failures; the remaining cases are not-run; 0 = no limit");
  add_flag(command, "-x,--fail-fast", "End the run at the first failure, as --max-fail 1 does");
  add_views(command, options);
  add_kept_files(command, options);
  add_flag(command, "--no-reference-cache", config.reference_cache,
           "Let the worker compute every expected result again, and keep none", false);
  add_duration(command, "--diagnosis-time", config.diagnosis_time, milliseconds{0},
               "Time limit of the diagnosis of a failure; 0 = 20 s, or 20 % of --timeout if that is less");
  add_flag(command, "--no-diagnosis", config.diagnosis, "Do not let the worker look for the cause of a failure", false);
  add_perf(command, options);
}

void add_flaky(CLI::App& command, RunConfig& config) {
  const auto wrong_with_flaky = [](const std::string& text) {
    return text == "fail" || text == "pass" ? "" : fmt::format("'{}' is neither fail nor pass", text);
  };
  add_text(command, "--flaky", "WHAT", [&config](const std::string& text) { config.flaky_fails = text == "fail"; },
           "How a case that passed on a later try counts for the exit code: fail or pass",
           {.check = wrong_with_flaky, .default_text = "pass"});
}

void add_retries(CLI::App& command, RunConfig& config) {
  add_count(command, "--retries", config.retries.most, "Run a case that does not pass again, up to N times");
  add_text(command, "--retry-on", "OUTCOMES",
           [&config](const std::string& text) {
             config.retries.on.clear();
             for (const std::string& part : split(text, ',')) config.retries.on.insert(*parse_name<CaseOutcome>(part));
           },
           "The outcomes after which --retries runs a case again, separated by commas",
           {.check = wrong_with_outcomes, .default_text = "crash,timeout,infra,error"});
  add_flaky(command, config);
  add_flag(
      command, "--triage", config.triage,
      "After the last case run failures again, to tell whether they are real, leaked, flaky or caused by the machine");
  add_path(command, "--capsules", config.capsules, "DIR", PathUse::folder,
           "Keep each failure in a folder, from which cp-pool replay runs it again, here or elsewhere");
}

void fill_execution(const CLI::App& command, ExecutionOptions& options) {
  apply_shorthand(command, "--fail-fast", "--max-fail", options.config.max_failures);
  apply_shorthand(command, "--isolate", "--pool-max-cases", options.config.pool_max_cases);
  apply_worker(command, options);
  apply_perf(command, options);
  apply_slots(command, options);
  apply_allocation(command, options);
  options.rerun_arguments = rerun_arguments(command, options);
}

}  // namespace cp_pool
