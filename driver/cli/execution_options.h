// The options for how cases are run and reported.
#pragma once

#include "driver/cli/option_kinds.h"
#include "driver/cli/worker_command.h"

namespace cp_pool {

struct ExecutionOptions {
  RunConfig config;                 // worker_command is filled in when the command is carried out
  std::string share_gpus = "auto";  // auto | on | off; sets config.share_gpus
  std::vector<int> gpus;            // the list of --gpus; sets config.gpus
  std::string mode = "verify";      // verify | perf; sets config.perf, with the next two
  protocol::PerfRequest perf;
  std::optional<std::filesystem::path> trace_dir;
  WorkerChoice worker;
  std::string launcher = "local";  // as given; sets config.launcher
  std::string fork = "auto";       // auto | on | off; whether an adapter's ranks are forked from one process
  std::optional<std::filesystem::path> junit;
  std::optional<std::filesystem::path> events;
  std::optional<std::filesystem::path> html;
  std::optional<std::filesystem::path> summary;
  std::optional<std::filesystem::path> trace_run;
  std::string annotate = "none";                  // none | github
  std::string status_level = "auto";              // name of a StatusLevel
  std::string show_output = "failed";             // name of a ShowOutput
  std::optional<std::filesystem::path> baseline;  // the events file of an earlier run; only with config.perf
  std::string spare = "auto";
  bool progress = true;
  bool verbose = false;  // a line and a table of every check for each case
  bool timings = false;
  bool force = false;                        // outputs may replace files that hold something else
  std::string warning;                       // for stderr, before the first case
  std::vector<std::string> rerun_arguments;  // the arguments that a rerun of one case needs
};

// Adds all of them, for a command that runs cases.
void add_execution(CLI::App& command, ExecutionOptions& options);
// Completes the options once they are read: chooses the device and sets values that depend on several options. Throws
// CommandError (usage) for options that contradict each other.
void fill_execution(const CLI::App& command, ExecutionOptions& options);

// Returns the command line `words` with the options that a rerun of one case needs, as the user would type it.
std::string rerun_line(std::vector<std::string> words, const ExecutionOptions& options);
// Returns the command line that reruns, by --rerun-failed, all cases that fail in a run; nullopt without an --events
// file that can be read afterwards.
std::optional<std::string> rerun_of_failed(std::vector<std::string> words, const ExecutionOptions& options);

// Adds --retries, --retry-on, --flaky, --triage and --capsules.
void add_retries(CLI::App& command, RunConfig& config);
// Adds --flaky alone, for reports of runs that are over.
void add_flaky(CLI::App& command, RunConfig& config);

// Adds the options for what is shown and reported.
void add_views(CLI::App& command, ExecutionOptions& options);
// Adds the options for what is kept of a run while it goes on: --events, --run-dir and --dump.
void add_kept_files(CLI::App& command, ExecutionOptions& options);

// add_worker adds --worker, --adapter and --python; add_adapter adds the last two, for a command that only uses
// adapters.
void add_worker(CLI::App& command, WorkerChoice& worker);
void add_adapter(CLI::App& command, WorkerChoice& worker);
// Checks the worker options once they are read. Throws CommandError (usage).
void check_worker(const CLI::App& command, const WorkerChoice& worker);
// Adds --device.
void add_device(CLI::App& command, std::string& device);
// Adds --gpus. `more` is added to its help.
void add_gpus(CLI::App& command, std::vector<int>& list, const std::string& more = "");

}  // namespace cp_pool
