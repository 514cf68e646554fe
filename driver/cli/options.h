// The command line of cp-pool, read but not yet carried out.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "driver/cli/select/order.h"
#include "driver/cli/select/shard.h"
#include "driver/run.h"

namespace cp_pool {

struct SelectionOptions {
  std::vector<std::string> matrices;  // names or files
  std::vector<std::string> filters;   // the union of what they select; empty = all
  std::string keywords;               // of these only what -k selects; empty = all
  std::string size;
  std::optional<std::set<std::string>> ids = std::nullopt;  // of what the filters select only these
  Shard shard = {};                                         // of what all these select
};

// How cases are run and what is written about it: common to run and submit.
struct ExecutionOptions {
  RunConfig config;                 // worker_command is filled in when the command is carried out
  std::string share_gpus = "auto";  // auto | on | off; config.share_gpus comes of it
  std::string worker;               // a command line; empty = the cp-pool-worker beside this program
  std::optional<std::filesystem::path> junit;
  std::optional<std::filesystem::path> events;
  std::optional<std::filesystem::path> html;
  std::optional<std::filesystem::path> baseline;  // an earlier run's events file; with config.perf alone
  bool progress = true;
  bool verbose = false;  // a line and a table of every check for each case
  bool timings = false;
  bool force = false;                        // outputs may replace files that hold something else
  std::string warning;                       // for stderr, before the first case
  std::vector<std::string> rerun_arguments;  // what a rerun of one case needs of the options above
};

struct RunOptions {
  SelectionOptions selection;
  std::optional<std::filesystem::path> rerun_failed;  // an earlier run's events file; selection.ids come from it
  ExecutionOptions execution;
  Order order;
  int repeat = 1;              // how often each case runs
  bool deterministic = false;  // every case asks for deterministic kernels
};

struct SubmitOptions {
  std::string case_argument;                          // an ID, a file, or "-"; empty with rerun_failed
  std::optional<std::filesystem::path> rerun_failed;  // an earlier run's events file: its cases are run instead
  SelectionOptions selection;                         // where an ID is looked up; no matrix = all shipped ones
  ExecutionOptions execution;
  std::vector<std::string> edits;  // "key=value", in order
  bool json = false;
};

struct ListOptions {
  SelectionOptions selection;
  bool json = false;
  bool count = false;
};

struct ExplainOptions {
  std::string case_argument;  // an ID or a file
  SelectionOptions selection;
  std::vector<std::string> edits;
};

struct ReportOptions {
  std::vector<std::string> files;  // of events
  ExecutionOptions execution;      // its views alone
};

struct DoctorOptions {
  std::string worker;                        // as ExecutionOptions::worker
  std::chrono::milliseconds timeout{10000};  // of the start of ranks, and of a case on them
};

struct ConformanceOptions {
  std::string worker;  // as ExecutionOptions::worker
  std::string device = "auto";
  std::chrono::milliseconds timeout{20000};        // for the answer to a case
  std::chrono::milliseconds start_timeout{60000};  // to be ready
};

struct PrintText {  // --help, --version
  std::string text;
};

using CommandLine = std::variant<RunOptions, SubmitOptions, ListOptions, ReportOptions, ExplainOptions, DoctorOptions,
                                 ConformanceOptions, PrintText>;

// Throws CommandError (usage).
CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace cp_pool
