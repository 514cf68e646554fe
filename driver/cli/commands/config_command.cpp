// `cp-pool config`: the value of every option of `run`, and where it comes from.
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/cli/commands/command_options.h"
#include "driver/cli/config/configuration.h"
#include "driver/cli/configured_app.h"
#include "driver/cli/error_reporting.h"
#include "driver/core/exit_code.h"

namespace cp_pool {
namespace {

constexpr const char* kConfigFooter =
    "Options of run may be given as well; they are shown with the values that run would use.\n\n"
    "Examples:\n"
    "  cp-pool config                                 the values of run in this folder, and where they are set\n"
    "  cp-pool config --profile ci --json             as a JSON object\n"
    "  CP_POOL_OPT_TIMEOUT=2m cp-pool config          a variable sets a key\n";

Json json_value(const CLI::Option& option, const std::vector<std::string>& values) {
  if (option.get_items_expected_max() == 0) return !values.empty() && values.back() == "true";
  if (option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll) return values;
  return values.empty() ? Json{} : Json(values.back());
}

Json json_value(const ConfigEntry& entry) {
  if (entry.kind == ConfigEntry::Kind::list) return entry.values;
  if (entry.kind == ConfigEntry::Kind::boolean) return entry.values.front() == "true";
  return entry.values.front();
}

// Returns the value of an option, who set it (option | variable | file | built-in | default), and the place.
Json shown(const CLI::Option& option, const ConfiguredApp& command) {
  const auto from = [&option](const std::vector<std::string>& values, const char* source, const std::string& place) {
    return Json{{"value", json_value(option, values)}, {"source", source}, {"place", place}};
  };
  if (option.count() > 0) return from(option.results(), "option", option.get_name());
  if (const auto setting = command.settings.find(&option); setting != command.settings.end()) {
    constexpr std::array kSources{"variable", "file", "file", "built-in"};  // in the order of SettingSource
    const OptionSetting& by = setting->second;
    return from(by.values, kSources.at(static_cast<std::size_t>(by.source)), by.place);
  }
  const std::string text = option.get_default_str();
  return from(text.empty() ? std::vector<std::string>{} : std::vector<std::string>{text}, "default", "");
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json{} : Json(text);
}

// Returns the line of a key, whose value has a place or a source.
std::string line_of(const std::string& key, std::size_t width, const Json& of) {
  const Json& value = of["value"];
  const std::string text = value.is_null() ? "-" : value.is_string() ? value.get<std::string>() : value.dump();
  const auto place = of["place"].get<std::string>();
  return fmt::format("{:<{}}  {}  ({})\n", key, width, text, place.empty() ? of["source"].get<std::string>() : place);
}

class ConfigCommand : public Command {
 public:
  explicit ConfigCommand(CLI::App& command) {
    add_options_of_run(command, run_);
    add_flag(command, "--json", json_,
             "Print a JSON object: profile, file, and the value, source and place of each key");
  }

  void configure(const Configuration& configuration, const ConfiguredApp& /*command*/) override {
    shown_ = {{"profile", configuration.profile()},
              {"file", text_or_null(configuration.file())},
              {"options", Json::object()},
              {"overrides", Json::array()}};
    for (const CaseOverride& each : configuration.overrides()) {
      Json keys = Json::object();
      for (const ConfigEntry& entry : each.table.entries) {
        keys[entry.key] = {{"value", json_value(entry)}, {"place", entry.place}};
      }
      shown_["overrides"].push_back(
          {{"profile", text_or_null(each.table.name)}, {"place", each.table.place}, {"keys", std::move(keys)}});
    }
  }

  void finish(const CLI::App& command) override {
    for (const CLI::Option* option : command.get_options()) {
      if (has_key(*option) && key_of(*option) != "json") {
        shown_["options"][key_of(*option)] = shown(*option, dynamic_cast<const ConfiguredApp&>(command));
      }
    }
  }

  int run(const std::string& /*program*/) override {
    print_on_stdout(json_ ? shown_.dump(2) + '\n' : text());
    return to_int(ExitCode::ok);
  }

 private:
  [[nodiscard]] std::string text() const {
    const Json& file = shown_["file"];
    std::string out = fmt::format("profile {}, {}\n", shown_["profile"].get<std::string>(),
                                  file.is_null() ? "no cp-pool.toml" : file.get<std::string>());
    std::size_t width = 0;
    for (const auto& [key, option] : shown_["options"].items()) width = std::max(width, key.size());
    for (const auto& [key, option] : shown_["options"].items()) out += line_of(key, width, option);
    for (const Json& table : shown_["overrides"]) {
      const Json& profile = table["profile"];
      out += fmt::format("override{}  ({})\n", profile.is_null() ? "" : " of profile " + profile.get<std::string>(),
                         table["place"].get<std::string>());
      for (const auto& [key, entry] : table["keys"].items()) out += "  " + line_of(key, width - 2, entry);
    }
    return out;
  }

  RunCommandOptions run_;
  bool json_ = false;
  Json shown_;  // what --json prints; a later override takes precedence over an earlier one
};

}  // namespace

Subcommand config_subcommand() {
  return subcommand<ConfigCommand>("config", "Show the value of every option of run, and where it comes from",
                                   kConfigFooter, Configured::yes);
}

}  // namespace cp_pool
