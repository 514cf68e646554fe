// Sets options that the command line leaves out, from the environment, cp-pool.toml and built-in profiles
// (docs/configuration.md). A key is the name of an option of `run`, and all of these options have one.
#pragma once

#include "driver/cli/config/case_overrides.h"
#include "driver/cli/option_kinds.h"

namespace cp_pool {

class ConfiguredApp;

struct ConfigChoice {
  std::optional<std::filesystem::path> file;  // nullopt: looked for from the working directory upward
  bool none = false;                          // true if no file is to be read
  std::string profile;                        // empty means that of the environment, or else `default`
};

// Adds --config, --no-config and --profile.
void add_config_options(CLI::App& command, ConfigChoice& choice);

// Returns the key of an option: its long name without dashes, or its letter if it has no long name.
std::string key_of(const CLI::Option& option);
// True if an option has a key. Positional arguments, --help and the options that choose the configuration have none.
bool has_key(const CLI::Option& option);

class Configuration {
 public:
  // `keys` is the command whose options are the keys. If `for_tests` is true, the variables of test runners count, too
  // (test_environment.h). Throws CommandError (usage) that names file, line and key.
  Configuration(const ConfigChoice& choice, const ConfiguredApp& keys, bool for_tests);

  // Sets the options that the command line left out. Throws CommandError (usage).
  void apply(ConfiguredApp& command) const;

  [[nodiscard]] const std::string& profile() const { return profile_; }
  [[nodiscard]] const std::string& file() const { return name_; }  // empty if there is none
  // The file's overrides that apply in this profile. A later one takes precedence.
  [[nodiscard]] const std::vector<CaseOverride>& overrides() const { return overrides_; }
  // Returns the overrides that are left beside the options of a command: the command line and the environment take
  // precedence over an override. `command` has been read and its settings applied.
  [[nodiscard]] OverridesOfRun overrides_beside(const ConfiguredApp& command) const;

 private:
  void add_variables(const ConfiguredApp& keys, bool for_tests);
  void add_profile(const ConfigFile& file, const std::string& name, SettingSource source);

  std::string name_;
  std::string profile_;
  bool named_ = false;  // the file was named, by --config or by the environment
  std::vector<CaseOverride> overrides_;
  std::map<std::string, OptionSetting> settings_;  // by key
};

// Appends to an error text where the options in it were set: "--graph needs .. (graph: cp-pool.toml:7)".
std::string with_places(std::string text, const ConfiguredApp& command);

}  // namespace cp_pool
