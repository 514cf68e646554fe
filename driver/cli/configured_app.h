// The parser of a subcommand whose options may also be set by cp-pool.toml and the environment.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "driver/cli/option_kinds.h"

namespace cp_pool {

class ConfiguredApp : public CLI::App {
 public:
  // Inherits the settings of the parent, as a subcommand does.
  ConfiguredApp(std::string description, std::string name, CLI::App* parent)
      : CLI::App(std::move(description), std::move(name), parent) {}

  std::map<const CLI::Option*, OptionSetting> settings;
  std::map<const CLI::Option*, FromFolder> from_folder;  // for options whose values name files
  std::vector<const CLI::Option*> command_line_alone;    // options that nothing else sets
};

}  // namespace cp_pool
