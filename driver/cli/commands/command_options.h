// The options of commands that other commands, or tests, read.
#pragma once

#include "driver/cli/commands/command.h"
#include "driver/cli/config/case_overrides.h"
#include "driver/cli/execution_options.h"
#include "driver/cli/history/earlier_run.h"
#include "driver/cli/history/run_records.h"
#include "driver/cli/select/selection.h"
#include "driver/cli/service_use.h"
#include "driver/cli/worker_command.h"
#include "driver/search/search.h"

namespace cp_pool {

struct RunCommandOptions {
  SelectionOptions selection;
  std::optional<std::filesystem::path> rerun_failed;  // events of an earlier run, which give selection.ids
  ExecutionOptions execution;
  ServiceOptions service;
  RecordOptions record;        // used by `run` alone
  std::string record_command;  // the command line that the record keeps
  Order order;
  OverridesOfRun overrides;      // from cp-pool.toml
  bool shard_by_runner = false;  // a test runner chose the shard, which may be empty (config/test_environment.h)
  int repeat = 1;                // how often each case runs
  bool deterministic = false;    // every case asks for deterministic kernels
};

// Adds all options of `run`, which are also the keys of cp-pool.toml.
void add_options_of_run(CLI::App& command, RunCommandOptions& options);

struct SubmitOptions {
  std::string case_argument;                          // an ID, a file, JSON, or "-" for stdin; empty with rerun_failed
  std::optional<std::filesystem::path> rerun_failed;  // the events file of an earlier run, whose failed cases are run
  SelectionOptions selection;  // where an ID is looked up: in all shipped matrices, if none is named
  ExecutionOptions execution;
  ServiceOptions service;
  std::vector<std::string> edits;  // "key=value", in order
  bool json = false;
  int jobs = 1;                                              // the number of cases of a stream that may run at once
  std::function<void(const CaseFinished&)> ended = nullptr;  // called when a case that is no part of a stream has ended
};

struct SearchOptions {
  std::vector<std::string> edits;    // fields that every case has
  std::vector<std::string> filters;  // a case that any of them selects may be drawn; empty means all
  int cases = 0;
  std::optional<std::uint64_t> seed;  // nullopt means another one each time
  SearchPlan plan;                    // but for these two
  bool record = true;                 // failing cases are added to the file
  std::string found;                  // a file; "off" keeps nothing; empty means the worker's own file
  ExecutionOptions execution;
};

struct ListOptions {
  SelectionOptions selection;
  WorkerChoice worker;         // only its adapter is used: it says which cases it would skip
  std::string format = "ids";  // ids | ctest | gtest
  std::string test_args;       // for ctest: further arguments of each call of `run`
  OverridesOfRun overrides;    // their keys xfail and skip say what is expected of a case
  bool json = false;
  bool count = false;
};

struct ReportOptions {
  std::vector<std::string> files;  // event streams, as --events writes them
  ExecutionOptions execution;      // only its views are used
  std::string id = "";             // the only case to be shown; empty means all
  bool whole = false;              // the shards among the runs have to make up their whole selection
  bool partial = false;            // they need not, but what is missing is told
  CaseTrends trends = {};          // added to cases whose events have no trend
};

// Shows the runs in the files as one, and returns its exit code. Throws CommandError.
int report_runs(const ReportOptions& options);

}  // namespace cp_pool
