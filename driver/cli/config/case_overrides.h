// [[override]] of cp-pool.toml: what holds for some cases alone (docs/configuration.md).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cases/filter.h"
#include "cases/matrix.h"
#include "driver/cli/config/config_file.h"
#include "driver/cli/execution_options.h"
#include "driver/cli/worker_command.h"
#include "driver/run.h"

namespace cp_pool {

struct CaseOverride {
  ConfigTable table;            // as the file has it
  std::vector<Filter> filters;  // it is for what any of them selects
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
  std::optional<int> retries = std::nullopt;
  std::optional<WorkerChoice> worker = std::nullopt;  // ranks.worker_command comes of it
  OwnRanks ranks = {};
  bool says_what_to_expect = false;
  std::optional<Expected> expected = std::nullopt;  // with that; none: a pass
};

// The overrides of a run whose options were read.
struct OverridesOfRun {
  std::vector<CaseOverride> all;
  // The command that reruns a case finds the same file and profile. What the file says of all cases is left to it: on
  // the command line it would count more than an override.
  std::vector<std::string> left_to_file = {};  // options
  std::vector<std::string> rerun_words = {};   // that name file and profile
};

// Changes the words of a command that reruns a case accordingly.
void leave_to_file(const OverridesOfRun& overrides, std::vector<std::string>& words);

// What the options of `run` say of keys that overrides have, too.
struct OverrideKeys {
  // What is wrong with a value of the option; empty: nothing.
  std::function<std::string(const std::string& key, const std::string& value)> wrong;
  std::function<bool(const std::string& key)> is_option;
};

// Throws CommandError (usage) that names file, line and key.
CaseOverride read_override(const ConfigTable& table, const OverrideKeys& keys);

// The workers that overrides name.
std::vector<WorkerChoice> workers_of(const std::vector<CaseOverride>& overrides, const ExecutionOptions& options);
// Finds them; once before overrides are applied.
void find_workers(std::vector<CaseOverride>& overrides, const ExecutionOptions& options);

// In their order, so that of each thing that several say of the case, the last counts.
void apply_overrides(const std::vector<CaseOverride>& overrides, const MatrixCase& of_matrix, NamedCase& named);

// What is expected of the case; nullopt: a pass.
std::optional<Expected> expected_of(const std::vector<CaseOverride>& overrides, const MatrixCase& of_matrix);

// "cp-pool.toml:7" of each that selects the case, with what it says.
std::vector<std::string> overrides_of(const std::vector<CaseOverride>& overrides, const MatrixCase& of_matrix);

// "KEY = VALUE, .." of what stands in the table, but for its filter.
std::string override_text(const ConfigTable& table);

}  // namespace cp_pool
