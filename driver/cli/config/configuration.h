// What sets the options of a command beside its command line: the environment, cp-pool.toml, built-in profiles
// (docs/configuration.md). A key is the name of an option of `run`, so every option has one.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "driver/cli/config/case_overrides.h"
#include "driver/cli/config/config_file.h"
#include "driver/cli/configured_app.h"

namespace cp_pool {

struct ConfigChoice {
  std::optional<std::filesystem::path> file;  // none: the one that is found from the working directory upward
  bool none = false;                          // no file is read
  std::string profile;                        // empty: that of the environment, else default
};

// --config, --no-config and --profile.
void add_config_options(CLI::App& command, ConfigChoice& choice);

// The key of an option: its long name without dashes; of one without, the letter.
std::string key_of(const CLI::Option& option);
// Whether an option has a key: not what ends the program (--help), nor what chooses the configuration.
bool has_key(const CLI::Option& option);
// What is wrong with a value of an option, as its own checks say; empty: nothing.
std::string wrong_with_value(const CLI::Option& option, const std::string& text);

class Configuration {
 public:
  // keys: the command whose options are the keys. for_tests: what a CI says to any test program counts, too
  // (test_environment.h). Throws CommandError (usage) that names file, line and key.
  Configuration(const ConfigChoice& choice, const ConfiguredApp& keys, bool for_tests);

  // Sets the options that the command line left out. Throws CommandError (usage).
  void apply(ConfiguredApp& command) const;

  [[nodiscard]] const std::string& profile() const { return profile_; }
  [[nodiscard]] const std::string& file() const { return name_; }  // empty: none
  // Of the file, as far as they count in this profile: a later one counts more.
  [[nodiscard]] const std::vector<CaseOverride>& overrides() const { return overrides_; }
  // What they say beside the options of a command that were read and set.
  [[nodiscard]] OverridesOfRun overrides_beside(const ConfiguredApp& command) const;

 private:
  struct Setting {
    OptionSetting setting;
    int rank = 0;  // the least counts
  };

  void add_variables(const ConfiguredApp& keys, bool for_tests);
  void add_profile(const ConfigFile& file, const std::string& name, int rank);
  void add(const std::string& key, const Setting& setting) { settings_.try_emplace(key, setting); }

  std::string name_;
  std::string profile_;
  bool named_ = false;  // the file was not looked for
  ConfigFile file_;
  std::vector<CaseOverride> overrides_;
  std::map<std::string, Setting> settings_;  // by key
};

// Adds the places of those settings that the error text is about: "--graph needs .. (graph: cp-pool.toml:7)".
std::string with_places(std::string text, const ConfiguredApp& command);

}  // namespace cp_pool
