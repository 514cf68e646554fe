#include "driver/cli/option_kinds.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <ranges>
#include <ratio>
#include <system_error>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "driver/cli/configured_app.h"
#include "driver/core/exit_code.h"
#include "driver/core/run.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

constexpr double kLongestMs = std::chrono::duration<double, std::milli>(kLongestDuration).count();
constexpr std::array<std::pair<std::string_view, double>, 5> kUnitsMs{
    {{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60 * 1000}, {"h", 3600 * 1000}}};

// Refuses an empty path, which an unset variable may leave, and "-", which other programs take for a stream and which
// would be a file here.
std::string wrong_with_path(const std::string& text, PathUse use) {
  if (text.empty()) return "the path is empty";
  if (use == PathUse::worker_folder && protocol::to_valid_utf8(text) != text) {
    return "the path is not UTF-8, which a message to the worker has to be";
  }
  const bool input = use == PathUse::input || use == PathUse::earlier_run;
  const char* const instead = input                    ? "/dev/stdin, or ./- for a file of that name"
                              : use == PathUse::output ? "/dev/stdout, or ./- for a file of that name"
                                                       : "./- for a folder of that name";
  return text == "-" ? fmt::format("'-' stands for no stream here; write {}", instead) : "";
}

// The number has to fit into an int.
std::string wrong_with_count(const std::string& text, int least) {
  if (text.starts_with('-')) return fmt::format("'{}' is negative", text);
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) {
    return fmt::format("'{}' is no whole number", text);
  }
  const auto value = parse_number<int>(text);
  if (!value) return fmt::format("'{}' is more than {}", text, std::numeric_limits<int>::max());
  return *value < least ? fmt::format("'{}' is less than {}", text, least) : "";
}

std::string wrong_with_duration(const std::string& text, std::chrono::milliseconds minimum) {
  const auto duration = parse_duration(text);
  if (!duration) return fmt::format("'{}' is not a duration of at most 1000 hours; write 90, 90s, 1500ms or 2m", text);
  if (*duration < minimum) return fmt::format("'{}' is too short", text);
  return "";
}

std::string wrong_with_ratio(const std::string& text) {
  double ratio = 0;
  const bool right = CLI::detail::lexical_cast(text, ratio) && std::isfinite(ratio) && ratio > 0;
  return right ? "" : fmt::format("'{}' is not a number above 0", text);
}

ConfiguredApp& configured(CLI::App& command) {
  return dynamic_cast<ConfiguredApp&>(command);
}

void note_from_folder(CLI::App& command, const CLI::Option* option, const FromFolder& from_folder) {
  if (from_folder) configured(command).from_folder.emplace(option, from_folder);
}

// The name of a recorded run does not depend on the folder.
std::string run_from_folder(const std::string& text, const std::filesystem::path& folder) {
  std::error_code ignored;
  const bool is_file = text.find('/') != std::string::npos || std::filesystem::exists(folder / text, ignored);
  return is_file && text != "last" ? path_from_folder(text, folder) : text;
}

}  // namespace

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (const auto part : std::views::split(text, separator)) parts.emplace_back(part.begin(), part.end());
  if (parts.empty()) parts.emplace_back();  // of an empty text
  return parts;
}

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(value) || std::signbit(value)) return std::nullopt;
  for (const auto& [unit, factor] : kUnitsMs) {
    if (unit != std::string_view(rest, static_cast<std::size_t>(end - rest))) continue;
    const double milliseconds = std::round(value * factor);
    if (milliseconds > kLongestMs) return std::nullopt;
    return std::chrono::milliseconds{static_cast<std::int64_t>(milliseconds)};
  }
  return std::nullopt;
}

std::string duration_text(std::chrono::milliseconds duration) {
  if (duration.count() % 1000 == 0) return fmt::format("{}s", duration.count() / 1000);
  return fmt::format("{}ms", duration.count());
}

std::string path_from_folder(const std::string& text, const std::filesystem::path& folder) {
  return text.empty() || text == "-" ? text : (folder / text).string();
}

void add_flag(CLI::App& command, const std::string& name, bool& target, const std::string& help, bool value) {
  command.add_flag_callback(name, [&target, value] { target = value; }, help);
}

void add_flag(CLI::App& command, const std::string& name, const std::string& help) {
  command.add_flag(name)->description(help);
}

void add_text(CLI::App& command, const std::string& name, const std::string& type, const TakeText& take,
              const std::string& help, const TextOption& option) {
  CLI::Option* added = command.add_option_function<std::string>(name, take, help);
  added->type_name(type)->default_str(option.default_text.value_or(""));
  if (option.check) added->check(option.check, "", "");
  note_from_folder(command, added, option.from_folder);
}

void add_text(CLI::App& command, const std::string& name, const std::string& type, std::string& target,
              const std::string& help, const TextOption& option) {
  add_text(command, name, type, [&target](const std::string& text) { target = text; }, help, option);
}

void add_text_or_nothing(CLI::App& command, const std::string& name, const std::string& type, const TakeText& take,
                         const std::string& help, const TextOption& option) {
  const std::string alone = option.default_text.value_or("");
  const auto take_or_default = [take, alone](const std::string& text) { take(text.empty() ? alone : text); };
  const auto check = [wrong = option.check](const std::string& text) { return text.empty() ? "" : wrong(text); };
  command.add_option_function<std::string>(name, take_or_default, help)
      ->type_name(type)
      ->expected(0, 1)
      ->check(check, "", "");
}

void add_choice(CLI::App& command, const std::string& name, const std::string& type,
                const std::vector<std::string>& words, std::string& target, const std::string& help) {
  command.add_option(name, target, help)->check(CLI::IsMember(words))->type_name(type)->capture_default_str();
}

void add_list(CLI::App& command, const std::string& name, const std::string& type, std::vector<std::string>& target,
              const std::string& help, bool greedy, const TextOption& option) {
  CLI::Option* added = command.add_option(name, target, help)
                           ->type_name(type)
                           ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
                           ->allow_extra_args(greedy);
  if (option.check) added->check(option.check, "", "");
  if (option.default_text) added->default_str(*option.default_text);
  note_from_folder(command, added, option.from_folder);
}

void add_duration(CLI::App& command, const std::string& name, std::chrono::milliseconds& target,
                  std::chrono::milliseconds minimum, const std::string& help) {
  add_text(command, name, "DURATION", [&target](const std::string& text) { target = *parse_duration(text); }, help,
           {.check = [minimum](const std::string& text) { return wrong_with_duration(text, minimum); },
            .default_text = duration_text(target)});
}

void add_count(CLI::App& command, const std::string& name, int& target, const std::string& help, int least) {
  const auto check = [least](const std::string& text) { return wrong_with_count(text, least); };
  command.add_option(name, target, help)->check(check, "", "")->type_name("N")->capture_default_str();
}

void add_ratio(CLI::App& command, const std::string& name, std::optional<double>& target, const std::string& help) {
  command.add_option_function<double>(
             name, [&target](double ratio) { target = ratio; }, help)
      ->check(wrong_with_ratio, "", "")
      ->type_name("R");
}

void add_path(CLI::App& command, const std::string& name, std::optional<std::filesystem::path>& target,
              const std::string& type, PathUse use, const std::string& help) {
  const auto check = [use](const std::string& text) { return wrong_with_path(text, use); };
  const FromFolder from_folder = use == PathUse::earlier_run ? run_from_folder : path_from_folder;
  add_text(command, name, type, [&target](const std::string& text) { target = text; }, help,
           {.check = check, .from_folder = from_folder});
}

void add_positional(CLI::App& command, const std::string& name, std::string& target, Needed needed,
                    const std::string& help) {
  command.add_option(name, target, help)->required(needed == Needed::yes);
}

void add_positionals(CLI::App& command, const std::string& name, std::vector<std::string>& target,
                     const std::string& help) {
  command.add_option(name, target, help)->required();
}

void exclude(CLI::App& command, const std::string& one, const std::string& other) {
  command.get_option(one)->excludes(command.get_option(other));
}

void bar_from_configuration(CLI::App& command, const std::vector<std::string>& names) {
  for (const std::string& name : names) configured(command).command_line_alone.push_back(command.get_option(name));
}

void bar_others_from_configuration(CLI::App& command, const std::string& name) {
  for (const CLI::Option* option : command.get_options()) {
    if (!option->check_name(name)) configured(command).command_line_alone.push_back(option);
  }
}

// The words are part of CLI11's type name: "DEVICE:{auto,cpu,cuda}".
std::vector<std::string> words_of_choice(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find(":{");
  if (begin == std::string::npos || !type.ends_with('}')) return {};
  return split(type.substr(begin + 2, type.size() - begin - 3), ',');
}

bool was_given(const CLI::App& command, const std::string& name) {
  const CLI::Option* option = command.get_option(name);
  if (option->count() == 0) return false;
  return option->get_items_expected_max() > 0 || option->as<bool>();
}

bool is_configured(const CLI::App& command, const std::string& name) {
  const auto& settings = dynamic_cast<const ConfiguredApp&>(command).settings;
  const auto setting = settings.find(command.get_option(name));
  if (setting == settings.end()) return false;
  const bool is_flag = setting->first->get_items_expected_max() == 0;
  return !is_flag || setting->second.values == std::vector<std::string>{"true"};
}

bool is_set(const CLI::App& command, const std::string& name) {
  return was_given(command, name) || is_configured(command, name);
}

std::vector<std::string> given_words(const CLI::App& command, Which which, const std::vector<std::string>& names) {
  std::vector<std::string> words;
  for (const CLI::Option* option : command.get_options()) {
    const auto is_it = [option](const std::string& name) { return option->check_name(name); };
    if (option->count() == 0 || std::ranges::any_of(names, is_it) != (which == Which::named)) continue;
    const std::string name = option->get_name();
    if (option->get_items_expected_max() == 0) {
      words.push_back(name);
      continue;
    }
    // A value may begin with '-', so it is written behind a '='.
    for (const std::string& value : option->results()) words.push_back(fmt::format("{}={}", name, value));
  }
  return words;
}

void refuse(const CLI::App& command, const std::string& message) {
  const std::string name = command.get_parent() == nullptr ? "" : command.get_name() + ' ';
  throw CommandError(ExitCode::usage, "{} (see cp-pool {}--help)", message, name);
}

void refuse_both(const CLI::App& command, const std::string& one, const std::string& other) {
  if (!was_given(command, one) || !was_given(command, other)) return;
  refuse(command, fmt::format("{} and {} contradict each other", one, other));
}

}  // namespace cp_pool
