// The options that say how cases are run, and what is written about it.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "driver/cli/worker_command.h"
#include "driver/run.h"

namespace CLI {  // NOLINT(readability-identifier-naming): of CLI11
class App;
}

namespace cp_pool {

struct ExecutionOptions {
  RunConfig config;                 // worker_command is filled in when the command is carried out
  std::string share_gpus = "auto";  // auto | on | off; config.share_gpus comes of it
  std::string gpus;                 // the list of --gpus; config.gpus comes of it
  std::string mode = "verify";      // verify | perf; config.perf comes of it and of the next two
  protocol::PerfRequest perf;
  std::optional<std::filesystem::path> trace_dir;
  WorkerChoice worker;
  std::string launcher = "local";      // as given; config.launcher comes of it
  std::string fork = "auto";           // auto | on | off; whether an adapter's ranks are forked from one process
  std::optional<double> bound_factor;  // as protocol::RunOfCase
  std::optional<std::filesystem::path> junit;
  std::optional<std::filesystem::path> events;
  std::optional<std::filesystem::path> html;
  std::optional<std::filesystem::path> summary;
  std::optional<std::filesystem::path> trace_run;
  std::string annotate = "none";                  // none | github
  std::string status_level = "auto";              // name of a StatusLevel
  std::string show_output = "failed";             // name of a ShowOutput
  std::optional<std::filesystem::path> baseline;  // an earlier run's events file; with config.perf alone
  std::string spare = "auto";
  bool progress = true;
  bool verbose = false;  // a line and a table of every check for each case
  bool timings = false;
  bool force = false;                        // outputs may replace files that hold something else
  std::string warning;                       // for stderr, before the first case
  std::vector<std::string> rerun_arguments;  // what a rerun of one case needs of the options above
};

// All of them, for a command that runs cases.
void add_execution(CLI::App& command, ExecutionOptions& options);
// Once they are read: chooses the device, and fills in what comes of several options. Throws CommandError (usage) for
// what contradicts each other.
void fill_execution(const CLI::App& command, ExecutionOptions& options);

// The part of them that says what is shown and reported.
void add_views(CLI::App& command, ExecutionOptions& options);

// --worker, --adapter and --python; or the last two alone, for a command to which only adapters matter.
void add_worker(CLI::App& command, WorkerChoice& worker);
void add_adapter(CLI::App& command, WorkerChoice& worker);
// Once they are read. Throws CommandError (usage).
void check_worker(const CLI::App& command, const WorkerChoice& worker);
// --device alone.
void add_device(CLI::App& command, std::string& device);

}  // namespace cp_pool
