// [[override]] of cp-pool.toml: settings for some cases alone (docs/configuration.md).
#pragma once

#include "cases/filter.h"
#include "cases/matrix.h"
#include "driver/cli/config/config_file.h"
#include "driver/cli/execution_options.h"

namespace cp_pool {

struct CaseOverride {
  ConfigTable table;                 // as it stands in the file
  std::vector<Filter> filters = {};  // the override applies to cases that any of them selects
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
  std::optional<int> retries = std::nullopt;
  std::optional<WorkerChoice> worker = std::nullopt;  // find_workers turns it into ranks.worker_command
  OwnRanks ranks = {};
  bool says_what_to_expect = false;
  std::optional<Expected> expected = std::nullopt;  // valid if says_what_to_expect; nullopt expects a pass
};

// The overrides that apply beside the options of a run.
struct OverridesOfRun {
  std::vector<CaseOverride> all = {};
  // The command that reruns a case finds the same file and profile. Options that the file sets for all cases are left
  // out of that command: there they would take precedence over an override.
  std::vector<std::string> left_to_file = {};  // the options that are left out
  std::vector<std::string> rerun_words = {};   // --config and --profile, where they are needed
};

// Changes the words of a rerun command accordingly.
void leave_to_file(const OverridesOfRun& overrides, std::vector<std::string>& words);

// Returns why the option of `run` that has this key refuses the value; empty if it takes it, nullopt if there is none.
using WrongWithKey = std::function<std::optional<std::string>(const std::string& key, const std::string& value)>;

// Reads an override, which shares some keys with options. Throws CommandError (usage) that names file, line and key.
CaseOverride read_override(const ConfigTable& table, const WrongWithKey& wrong);

// Sets the commands of the workers that overrides name. To be called once before overrides are applied.
void find_workers(std::vector<CaseOverride>& overrides, const ExecutionOptions& options);

// Applies the overrides that select the case, in their order, so that the last one to set something wins.
void apply_overrides(const std::vector<CaseOverride>& overrides, const MatrixCase& of_matrix, Item& named);

// Returns the outcome that is expected of the case; nullopt means a pass.
std::optional<Expected> expected_of(const std::vector<CaseOverride>& overrides, const MatrixCase& of_matrix);

// Returns the place and the settings of each override that selects the case: "cp-pool.toml:7: timeout = 2m".
std::vector<std::string> overrides_of(const std::vector<CaseOverride>& overrides, const MatrixCase& of_matrix);

}  // namespace cp_pool
