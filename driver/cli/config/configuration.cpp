#include "driver/cli/config/configuration.h"

#include <cctype>
#include <cstdlib>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/did_you_mean.h"
#include "driver/cli/config/test_environment.h"
#include "driver/cli/configured_app.h"
#include "driver/core/mapped.h"

namespace cp_pool {
namespace {

constexpr std::string_view kPrefix = "CP_POOL_OPT_";
constexpr const char* kDefaultProfile = "default";

// The built-in profiles, in the format of cp-pool.toml.
constexpr std::string_view kBuiltIn = R"(
[profile.default]

[profile.ci]
no-progress = true
timings = true
slow-after = "60s"
triage = true

[profile.local]
max-fail = 10
)";

bool is_flag(const CLI::Option& option) {
  return option.get_items_expected_max() == 0;
}

bool is_list(const CLI::Option& option) {
  return option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
}

std::string variable_of(const std::string& key) {
  std::string name{kPrefix};
  for (const char c : key) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

// Returns nullptr if no option has the key.
const CLI::Option* option_of_key(const CLI::App& app, const std::string& key) {
  const auto options = app.get_options([&](const CLI::Option* each) { return has_key(*each) && key_of(*each) == key; });
  return options.empty() ? nullptr : options.front();
}

std::vector<std::string> keys_of(const CLI::App& app) {
  return mapped(app.get_options([](const CLI::Option* each) { return has_key(*each); }),
                [](const CLI::Option* each) { return key_of(*each); });
}

// Returns why the checks of an option refuse a value; empty if they accept it.
std::string wrong_with_value(const CLI::Option& option, const std::string& text) {
  // CLI11 gives the checks of an option only one by one, until there is none.
  auto& checked = const_cast<CLI::Option&>(option);  // NOLINT(cppcoreguidelines-pro-type-const-cast): nothing changes
  try {
    for (int i = 0;; ++i) {
      std::string value = text;
      std::string wrong = (*checked.get_validator(i))(value);
      if (wrong.empty()) continue;
      const std::vector<std::string> words = words_of_choice(option);
      if (words.empty()) return wrong;
      return fmt::format("'{}' is none of {}{}", text, fmt::join(words, ", "), did_you_mean(text, words));
    }
  } catch (const CLI::OptionNotFound&) {
    return "";
  }
}

// Throws CommandError (usage).
void check_entry(const ConfigEntry& entry, const CLI::App& keys) {
  const CLI::Option* option = option_of_key(keys, entry.key);
  if (option == nullptr) {
    refuse_at(entry.place, fmt::format("unknown key '{}'{}", entry.key, did_you_mean(entry.key, keys_of(keys))));
  }
  const auto refuse_value = [&](const std::string& what) {
    refuse_at(entry.place, fmt::format("{}: {}", entry.key, what));
  };
  if (is_flag(*option)) {
    const std::string& text = entry.kind == ConfigEntry::Kind::list ? "a list" : entry.values.front();
    if (entry.kind != ConfigEntry::Kind::boolean) refuse_value(fmt::format("'{}' is neither true nor false", text));
    return;
  }
  if (entry.kind == ConfigEntry::Kind::list && !is_list(*option)) refuse_value("a list, where one value is wanted");
  for (const std::string& value : entry.values) {
    if (const std::string wrong = wrong_with_value(*option, value); !wrong.empty()) refuse_value(wrong);
  }
}

void check_profiles(const ConfigFile& file, const CLI::App& keys) {
  for (const ConfigTable& profile : file.profiles) {
    for (const ConfigEntry& entry : profile.entries) check_entry(entry, keys);
  }
}

// Makes relative paths of a file in another folder start in that folder.
void rebase(ConfigFile& file, const ConfiguredApp& keys) {
  std::error_code ignored;
  if (file.folder == std::filesystem::current_path(ignored)) return;
  const auto rebase_table = [&](ConfigTable& table) {
    for (ConfigEntry& entry : table.entries) {
      const CLI::Option* const option = option_of_key(keys, entry.key);
      const auto rebased = keys.from_folder.find(option);
      if (rebased == keys.from_folder.end()) continue;
      for (std::string& value : entry.values) value = rebased->second(value, file.folder);
    }
  };
  std::ranges::for_each(file.profiles, rebase_table);
  std::ranges::for_each(file.overrides, rebase_table);
}

// Throws CommandError (usage).
std::vector<std::string> values_of_variable(const CLI::Option& option, const std::string& name,
                                            const std::string& text) {
  if (is_flag(option)) {
    const bool on = text == "1" || text == "true";
    if (!on && text != "0" && text != "false") refuse_at(name, fmt::format("'{}' is none of 1, true, 0, false", text));
    return {on ? "true" : "false"};
  }
  std::vector<std::string> values = is_list(option) ? split(text, '\n') : std::vector{text};
  if (is_list(option)) std::erase(values, "");
  for (const std::string& value : values) {
    if (const std::string wrong = wrong_with_value(option, value); !wrong.empty()) refuse_at(name, wrong);
  }
  return values;
}

// Returns an option that contradicts this one and is on the command line or has a setting; nullptr if there is none.
const CLI::Option* rival_of(const CLI::Option& option, const ConfiguredApp& command) {
  for (const CLI::Option* other : option.get_excludes()) {
    if (other->count() > 0) return other;
    const auto setting = command.settings.find(other);
    if (setting != command.settings.end() && setting->second.values != std::vector<std::string>{"false"}) return other;
  }
  return nullptr;
}

}  // namespace

void add_config_options(CLI::App& command, ConfigChoice& choice) {
  add_path(command, "--config", choice.file, "FILE", PathUse::input,
           "Defaults of options; without it: cp-pool.toml in this folder or one above");
  add_flag(command, "--no-config", choice.none, "Read no cp-pool.toml");
  exclude(command, "--config", "--no-config");
  add_text(command, "--profile", "NAME", choice.profile, "Which defaults: default, ci, local, or one of cp-pool.toml",
           {.default_text = kDefaultProfile});
}

std::string key_of(const CLI::Option& option) {
  return option.get_lnames().empty() ? option.get_snames().front() : option.get_lnames().front();
}

bool has_key(const CLI::Option& option) {
  if (option.get_positional()) return false;
  const std::vector<std::string> without{"help", "config", "no-config", "profile"};
  return std::ranges::count(without, key_of(option)) == 0;
}

Configuration::Configuration(const ConfigChoice& choice, const ConfiguredApp& keys, bool for_tests) {
  const auto variable = [](const char* key) { return std::getenv(variable_of(key).c_str()); };
  std::optional<std::filesystem::path> path = choice.file;
  if (const char* named = variable("config"); !path && named != nullptr && *named != '\0') path = named;
  std::error_code ignored;
  const std::filesystem::path here = std::filesystem::current_path(ignored);
  named_ = path.has_value();
  if (!path && !choice.none) path = find_config_file(here);
  ConfigFile config;
  if (path && !choice.none) {
    const bool beside = path->parent_path() == here;
    name_ = beside ? path->filename().string() : path->string();
    config = read_config_file(name_);
    rebase(config, keys);
  }
  const auto wrong = [&](const std::string& key, const std::string& value) {
    const CLI::Option* const option = option_of_key(keys, key);
    return option == nullptr ? std::nullopt : std::optional(wrong_with_value(*option, value));
  };
  for (const ConfigTable& table : config.overrides) overrides_.push_back(read_override(table, wrong));
  ConfigFile built_in = parse_config(kBuiltIn, "built-in profile", {});
  check_profiles(config, keys);
  check_profiles(built_in, keys);

  std::string asked_by = "--profile";
  profile_ = choice.profile;
  if (const char* named = variable("profile"); profile_.empty() && named != nullptr) {
    profile_ = named;
    asked_by = variable_of("profile");
  }
  if (profile_.empty()) profile_ = kDefaultProfile;
  std::vector<std::string> known;
  for (const ConfigFile* file : {&built_in, &config}) {
    for (const ConfigTable& profile : file->profiles) {
      if (std::ranges::count(known, profile.name) == 0) known.push_back(profile.name);
    }
  }
  if (std::ranges::count(known, profile_) == 0) {
    refuse_at(asked_by, fmt::format("there is no profile '{}'{}; there are {}", profile_, did_you_mean(profile_, known),
                                    fmt::join(known, ", ")));
  }

  const auto place_of_profile = [&](const CaseOverride& each) {
    return each.table.name.empty() ? 0 : each.table.name == kDefaultProfile ? 1 : 2;
  };
  std::erase_if(overrides_,
                [&](const CaseOverride& each) { return place_of_profile(each) == 2 && each.table.name != profile_; });
  std::ranges::stable_sort(overrides_, {}, place_of_profile);

  // The first source that sets a key takes precedence.
  add_variables(keys, for_tests);
  add_profile(config, profile_, SettingSource::profile);
  add_profile(config, kDefaultProfile, SettingSource::default_profile);
  for (ConfigTable& profile : built_in.profiles) {
    for (ConfigEntry& entry : profile.entries) entry.place = fmt::format("built-in profile {}", profile.name);
  }
  add_profile(built_in, profile_, SettingSource::built_in);
}

// Throws CommandError (usage).
void Configuration::add_variables(const ConfiguredApp& keys, bool for_tests) {
  std::vector<std::string> names{variable_of("config"), variable_of("profile")};
  std::ranges::transform(keys_of(keys), std::back_inserter(names), variable_of);
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text{*entry};
    if (!text.starts_with(kPrefix)) continue;
    const std::string name{text.substr(0, text.find('='))};
    if (std::ranges::count(names, name) > 0) continue;
    refuse_at(name, fmt::format("there is no such option{}", did_you_mean(name, names)));
  }
  for (const std::string& key : keys_of(keys)) {
    const std::string name = variable_of(key);
    const char* const text = std::getenv(name.c_str());
    if (text == nullptr) continue;
    settings_[key] = {.values = values_of_variable(*option_of_key(keys, key), name, text), .place = name};
  }
  if (for_tests) settings_.merge(test_variables());
}

void Configuration::add_profile(const ConfigFile& file, const std::string& name, SettingSource source) {
  for (const ConfigTable& profile : file.profiles) {
    if (profile.name != name) continue;
    for (const ConfigEntry& entry : profile.entries) {
      settings_.try_emplace(entry.key, OptionSetting{entry.values, entry.place, source});
    }
  }
}

void Configuration::apply(ConfiguredApp& command) const {
  std::vector<std::pair<CLI::Option*, OptionSetting>> wanted;
  for (CLI::Option* option : command.get_options([](const CLI::Option*) { return true; })) {
    if (!has_key(*option) || option->count() > 0) continue;
    if (std::ranges::count(command.command_line_alone, option) > 0) continue;
    const auto setting = settings_.find(key_of(*option));
    if (setting != settings_.end()) wanted.emplace_back(option, setting->second);
  }
  // Of options that exclude each other, the one whose source takes precedence is set.
  std::ranges::stable_sort(wanted, {}, [](const auto& each) { return each.second.source; });
  for (auto& [option, setting] : wanted) {
    if (const CLI::Option* rival = rival_of(*option, command)) {
      const bool both_here = rival->count() == 0 && settings_.at(key_of(*rival)).source == setting.source;
      if (!both_here || setting.values == std::vector<std::string>{"false"}) continue;
      refuse_at(setting.place, fmt::format("{} and {} contradict each other", key_of(*option), key_of(*rival)));
    }
    try {
      option->clear();
      for (const std::string& value : setting.values) option->add_result(value);
      if (!setting.values.empty()) option->run_callback();
    } catch (const CLI::Error& e) {
      refuse_at(setting.place, fmt::format("{}: {}", key_of(*option), e.what()));
    }
    option->clear();  // an option that is not on the command line does not count as given
    command.settings.emplace(option, std::move(setting));
  }
}

OverridesOfRun Configuration::overrides_beside(const ConfiguredApp& command) const {
  if (overrides_.empty()) return {};
  const auto setting_of = [&](const std::string& key) -> const OptionSetting* {
    const auto setting = command.settings.find(option_of_key(command, key));
    return setting == command.settings.end() ? nullptr : &setting->second;
  };
  const auto is_told = [&](const std::string& key) {
    const CLI::Option* const option = option_of_key(command, key);
    const OptionSetting* const setting = setting_of(key);
    return (option != nullptr && option->count() > 0) ||
           (setting != nullptr && setting->source == SettingSource::variable);
  };
  OverridesOfRun out{.all = overrides_};
  for (CaseOverride& each : out.all) {
    if (is_told("timeout")) each.timeout.reset();
    if (is_told("retries")) each.retries.reset();
    if (is_told("worker") || is_told("adapter")) each.worker.reset();
  }
  for (const std::string key : {"timeout", "worker", "adapter"}) {
    if (setting_of(key) != nullptr && !is_told(key)) out.left_to_file.push_back("--" + key);
  }
  if (named_) out.rerun_words.insert(out.rerun_words.end(), {"--config", name_});
  if (profile_ != kDefaultProfile) out.rerun_words.insert(out.rerun_words.end(), {"--profile", profile_});
  return out;
}

std::string with_places(std::string text, const ConfiguredApp& command) {
  std::vector<std::string> places;
  for (const auto& [option, setting] : command.settings) {
    const std::string name = option->get_name(false, false);
    const std::size_t at = text.find(name);
    if (at == std::string::npos) continue;
    const std::size_t end = at + name.size();
    if (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '-')) continue;
    places.push_back(fmt::format("{}: {}", name, setting.place));
  }
  if (!places.empty()) text += fmt::format(" ({})", fmt::join(places, ", "));
  return text;
}

}  // namespace cp_pool
