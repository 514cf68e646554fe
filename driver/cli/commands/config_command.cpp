// `cp-pool config`: the value of every option of `run`, and where it comes from.
#include <array>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/cli/commands/command_options.h"
#include "driver/cli/config/configuration.h"
#include "driver/cli/configured_app.h"
#include "driver/core/exit_code.h"

namespace cp_pool {
namespace {

constexpr const char* kConfigFooter =
    "Options of run may be given as well; they are shown with the values that run would use.\n\n"
    "Examples:\n"
    "  cp-pool config                                 the values of run in this folder, and where they are set\n"
    "  cp-pool config --profile ci --json             as a JSON object\n"
    "  CP_POOL_OPT_TIMEOUT=2m cp-pool config          a variable sets a key\n";

struct Shown {
  std::string key;
  nlohmann::json value = {};
  std::string source;  // option | variable | file | built-in | default
  std::string place = {};
};

nlohmann::json json_value(const CLI::Option& option, const std::vector<std::string>& values) {
  if (option.get_items_expected_max() == 0) return !values.empty() && values.back() == "true";
  if (option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll) return values;
  return values.empty() ? nlohmann::json{} : nlohmann::json(values.back());
}

nlohmann::json json_value(const ConfigEntry& entry) {
  if (entry.kind == ConfigEntry::Kind::list) return entry.values;
  if (entry.kind == ConfigEntry::Kind::boolean) return entry.values.front() == "true";
  return entry.values.front();
}

Shown shown(const CLI::Option& option, const ConfiguredApp& command) {
  Shown out{.key = key_of(option), .source = "default"};
  if (option.count() > 0) {
    out.value = json_value(option, option.results());
    out.source = "option";
    out.place = option.get_name();
    return out;
  }
  if (const auto setting = command.settings.find(&option); setting != command.settings.end()) {
    out.value = json_value(option, setting->second.values);
    out.place = setting->second.place;
    constexpr std::array kSources{"variable", "file", "file", "built-in"};  // in the order of SettingSource
    out.source = kSources.at(static_cast<std::size_t>(setting->second.source));
    return out;
  }
  const std::string text = option.get_default_str();
  out.value = json_value(option, text.empty() ? std::vector<std::string>{} : std::vector<std::string>{text});
  return out;
}

std::string value_text(const nlohmann::json& value) {
  if (value.is_null()) return "-";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

class ConfigCommand : public Command {
 public:
  explicit ConfigCommand(CLI::App& command) {
    add_options_of_run(command, run_);
    add_flag(command, "--json", json_,
             "Print a JSON object: profile, file, and the value, source and place of each key");
  }

  void configure(const Configuration& configuration, const ConfiguredApp& /*command*/) override {
    profile_ = configuration.profile();
    file_ = configuration.file();
    for (const CaseOverride& each : configuration.overrides()) overrides_.push_back(each.table);
  }

  void finish(const CLI::App& command) override {
    for (const CLI::Option* option : command.get_options()) {
      if (has_key(*option) && key_of(*option) != "json") {
        shown_.push_back(shown(*option, dynamic_cast<const ConfiguredApp&>(command)));
      }
    }
  }

  int run(const std::string& /*program*/) override {
    write_all(STDOUT_FILENO, json_ ? json() : text(), "stdout");
    return to_int(ExitCode::ok);
  }

 private:
  [[nodiscard]] std::string text() const {
    std::string out = fmt::format("profile {}, {}\n", profile_, file_.empty() ? "no cp-pool.toml" : file_);
    std::size_t width = 0;
    for (const Shown& each : shown_) width = std::max(width, each.key.size());
    for (const Shown& each : shown_) {
      out += fmt::format("{:<{}}  {}  ({})\n", each.key, width, value_text(each.value),
                         each.place.empty() ? each.source : each.place);
    }
    for (const ConfigTable& table : overrides_) {
      out += fmt::format("override{}  ({})\n", table.name.empty() ? "" : " of profile " + table.name, table.place);
      for (const ConfigEntry& entry : table.entries) {
        out += fmt::format("  {:<{}}  {}  ({})\n", entry.key, width - 2, value_text(json_value(entry)), entry.place);
      }
    }
    return out;
  }

  [[nodiscard]] std::string json() const {
    nlohmann::ordered_json out{{"profile", profile_},
                               {"file", file_.empty() ? nlohmann::ordered_json{} : nlohmann::ordered_json(file_)},
                               {"options", nlohmann::ordered_json::object()}};
    for (const Shown& each : shown_) {
      out["options"][each.key] = {{"value", each.value}, {"source", each.source}, {"place", each.place}};
    }
    out["overrides"] = nlohmann::ordered_json::array();
    for (const ConfigTable& table : overrides_) {
      nlohmann::ordered_json& shown = out["overrides"].emplace_back();
      shown = {{"profile", table.name.empty() ? nlohmann::ordered_json{} : nlohmann::ordered_json(table.name)},
               {"place", table.place},
               {"keys", nlohmann::ordered_json::object()}};
      for (const ConfigEntry& entry : table.entries) {
        shown["keys"][entry.key] = {{"value", json_value(entry)}, {"place", entry.place}};
      }
    }
    return out.dump(2) + '\n';
  }

  RunCommandOptions run_;
  bool json_ = false;
  std::string profile_;
  std::string file_;
  std::vector<Shown> shown_;
  std::vector<ConfigTable> overrides_;  // a later table overrides an earlier one
};

}  // namespace

Subcommand config_subcommand() {
  return subcommand<ConfigCommand>("config", "Show the value of every option of run, and where it comes from",
                                   kConfigFooter, Configured::yes);
}

}  // namespace cp_pool
